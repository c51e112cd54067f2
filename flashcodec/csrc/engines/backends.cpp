#include "engines/backends.h"

#include <array>

#include "engines/cpu/cpu_backend.h"

namespace flashcodec {

std::span<const Backend* const> backends() {
  static const CpuBackend cpu;
  static const std::array<const Backend*, 1> all{&cpu};
  return all;
}

}  // namespace flashcodec
