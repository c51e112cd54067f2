#include "engines/nvdec/gpu_points.h"

#include <array>
#include <string>

namespace flashcodec {

using native::cuda::CudaError;

namespace {

// A warp reads a row's neighbours; the rows of a block share what they read of the picture.
constexpr unsigned kBlockWidth = 32;
constexpr unsigned kBlockRows = 8;

unsigned blocks(int count, unsigned size) { return (static_cast<unsigned>(count) + size - 1) / size; }

}  // namespace

GpuPoints::GpuPoints(GpuPtr gpu, StreamOrder order, Unloaded /*unused*/) : stream_(std::move(gpu), order) {}

GpuPoints::GpuPoints(GpuPtr gpu, StreamOrder order) : GpuPoints(std::move(gpu), order, Unloaded{}) {
  const std::span<const unsigned char> code = point_kernels();
  if (code.empty()) {
    throw CudaError(
        "FlashCodec was built without nvcc, so it has no kernels for GPUs: install the CUDA toolkit, and "
        "build it again");
  }
  const GpuFunctions& functions = stream_.gpu()->functions();
  const native::cuda::Driver& driver = stream_.gpu()->driver();
  const auto now = stream_.gpu()->current();
  driver.call(functions.module_load, &module_, code.data());
  driver.call(functions.module_function, &across_, module_, "across_pass");
  driver.call(functions.module_function, &down_, module_, "down_pass");
}

GpuPoints::~GpuPoints() {
  if (!gpu()->driver().is_usable()) return;
  try {
    fence();
    const auto now = gpu()->current();
    if (module_ != nullptr) gpu()->functions().module_unload.pointer(module_);
  } catch (const CudaError&) {  // the driver has shut down
  }
}

std::shared_ptr<const std::byte> GpuPoints::upload(std::span<const std::byte> table) {
  if (table.empty()) return nullptr;
  const std::shared_ptr<uint8_t[]> copy = gpu()->take(table.size());
  uploads_.emplace_back(table.begin(), table.end());
  stream_.copy(copy.get(), uploads_.back());
  return {copy, reinterpret_cast<const std::byte*>(copy.get())};
}

uint8_t* GpuPoints::scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    fence();  // the old one may be in use
    scratch_ = gpu()->take(bytes);
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
  const auto now = gpu()->current();
  gpu()->driver().call(gpu()->functions().launch, kernel, blocks(width, kBlockWidth), blocks(rows, kBlockRows), 1U,
                       kBlockWidth, kBlockRows, 1U, 0U, stream_.handle(), arguments.data(), nullptr);
}

void GpuPoints::fence() {
  stream_.fence();
  uploads_.clear();
}

}  // namespace flashcodec
