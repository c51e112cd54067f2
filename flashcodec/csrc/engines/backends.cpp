#include "engines/backends.h"

#include "engines/cpu/cpu_backend.h"
#include "engines/nvdec/nvdec_backend.h"

namespace flashcodec {

Backends backends_for(std::span<const int> gpus) {
  Backends backends;
  if (gpus.empty()) backends.push_back(std::make_unique<CpuBackend>());
  for (const int number : gpus) {
    const auto gpu = std::make_shared<Gpu>(number);
    backends.push_back(std::make_unique<NvdecBackend>(gpu));
    backends.push_back(std::make_unique<UploadingBackend>(gpu, static_cast<int>(gpus.size())));
  }
  return backends;
}

}  // namespace flashcodec
