#include "engines/backends.h"

#include "engines/cpu/cpu_backend.h"
#include "engines/nvdec/nvdec_backend.h"

namespace flashcodec {

Backends backends_for(std::optional<int> number) {
  Backends backends;
  if (!number) {
    backends.push_back(std::make_unique<CpuBackend>());
    return backends;
  }
  const auto gpu = std::make_shared<Gpu>(*number);
  backends.push_back(std::make_unique<NvdecBackend>(gpu));
  backends.push_back(std::make_unique<UploadingBackend>(gpu));
  return backends;
}

}  // namespace flashcodec
