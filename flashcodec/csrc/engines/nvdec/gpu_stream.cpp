#include "engines/nvdec/gpu_stream.h"

namespace flashcodec {

using native::cuda::Address;
using native::cuda::CudaError;

GpuStream::GpuStream(GpuPtr gpu, StreamOrder order) : gpu_(std::move(gpu)) {
  const auto now = gpu_->current();
  const unsigned flags = order == StreamOrder::kAlone ? kNonBlocking : 0;
  gpu_->driver().call(gpu_->functions().stream_create, &handle_, flags);
}

GpuStream::~GpuStream() {
  if (!gpu_->driver().is_usable()) return;
  try {
    const auto now = gpu_->current();
    gpu_->functions().stream_synchronize.pointer(handle_);
    gpu_->functions().stream_destroy.pointer(handle_);
  } catch (const CudaError&) {  // the driver has shut down
  }
}

void GpuStream::copy(uint8_t* to, std::span<const std::byte> from) {
  const auto now = gpu_->current();
  gpu_->driver().call(gpu_->functions().copy_to_device, reinterpret_cast<Address>(to), from.data(), from.size(),
                      handle_);
}

void GpuStream::fence() {
  const auto now = gpu_->current();
  gpu_->driver().call(gpu_->functions().stream_synchronize, handle_);
}

}  // namespace flashcodec
