// The passes of points/passes.h with a GPU's thread for each pixel.
#include "pixels/points/passes.h"

namespace {

template <class Pass>
__device__ void run(const Pass& pass, int rows, int width) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (x < width && y < rows) pass(y, x);
}

}  // namespace

extern "C" __global__ void across_pass(flashcodec::AcrossPass pass) { run(pass, pass.out.rows, pass.out.width); }

extern "C" __global__ void down_pass(flashcodec::DownPass pass) { run(pass, pass.canvas.height, pass.canvas.width); }
