#include "engines/nvdec/gpu_points.h"

#include <array>
#include <string>

namespace flashcodec {

using native::cuda::Address;
using native::cuda::CudaError;

namespace {

// A warp reads a row's neighbours; the rows of a block share what they read of the picture.
constexpr unsigned kBlockWidth = 32;
constexpr unsigned kBlockRows = 8;

unsigned blocks(int count, unsigned size) { return (static_cast<unsigned>(count) + size - 1) / size; }

}  // namespace

GpuPoints::GpuPoints(GpuPtr gpu, Unloaded /*unused*/) : gpu_(std::move(gpu)) {}

GpuPoints::GpuPoints(GpuPtr gpu) : GpuPoints(std::move(gpu), Unloaded{}) {
  const std::span<const unsigned char> code = point_kernels();
  if (code.empty()) {
    throw CudaError(
        "FlashCodec was built without nvcc, so it has no kernels for GPUs: install the CUDA toolkit, and "
        "build it again");
  }
  const auto& functions = gpu_->functions();
  const auto now = gpu_->current();
  const auto call = [&](const auto& function, auto... arguments) { gpu_->driver().call(function, arguments...); };
  call(functions.module_load, &module_, code.data());
  call(functions.module_function, &across_, module_, "across_pass");
  call(functions.module_function, &down_, module_, "down_pass");
  call(functions.stream_create, &stream_, 0U);  // waits for the default stream, on which FFmpeg works
}

GpuPoints::~GpuPoints() {
  if (!gpu_->driver().is_usable()) return;
  try {
    const auto now = gpu_->current();
    if (stream_ != nullptr) gpu_->functions().stream_synchronize.pointer(stream_);
    if (stream_ != nullptr) gpu_->functions().stream_destroy.pointer(stream_);
    if (module_ != nullptr) gpu_->functions().module_unload.pointer(module_);
  } catch (const CudaError&) {  // the driver has shut down
  }
}

std::shared_ptr<const std::byte> GpuPoints::upload(std::span<const std::byte> table) {
  if (table.empty()) return nullptr;
  const std::shared_ptr<uint8_t[]> copy = gpu_->take(table.size());
  const auto now = gpu_->current();
  gpu_->driver().call(gpu_->driver().copy_to_device, reinterpret_cast<Address>(copy.get()), table.data(), table.size());
  return {copy, reinterpret_cast<const std::byte*>(copy.get())};
}

uint8_t* GpuPoints::scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    fence();  // the old one may be in use
    scratch_ = gpu_->take(bytes);
    scratch_bytes_ = bytes;
  }
  return scratch_.get();
}

void GpuPoints::run(const AcrossPass& pass) { launch(across_, pass, pass.out.rows, pass.out.width); }

void GpuPoints::run(const DownPass& pass) { launch(down_, pass, pass.canvas.height, pass.canvas.width); }

template <class Pass>
void GpuPoints::launch(void* kernel, const Pass& pass, int rows, int width) {
  Pass copy = pass;
  std::array<void*, 1> arguments{&copy};
  const auto now = gpu_->current();
  gpu_->driver().call(gpu_->functions().launch, kernel, blocks(width, kBlockWidth), blocks(rows, kBlockRows), 1U,
                      kBlockWidth, kBlockRows, 1U, 0U, stream_, arguments.data(), nullptr);
}

void GpuPoints::fence() {
  const auto now = gpu_->current();
  gpu_->driver().call(gpu_->functions().stream_synchronize, stream_);
}

}  // namespace flashcodec
