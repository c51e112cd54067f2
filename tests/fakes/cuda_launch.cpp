// The part of the stand-in for libcuda that runs FlashCodec's kernels, each thread in its turn.
#include <string_view>

#include "cuda_memory.h"
#include "cuda_streams.h"
#include "pixels/points/passes.h"

extern "C" int cuCtxGetCurrent(void** context);

namespace {

enum Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kIllegalAddress = 700
};

struct Grid {
  unsigned width;
  unsigned height;
};

int across = 0;
int down = 0;
int module = 0;

template <class Pass>
fake_cuda::Work threads_of(const void* argument, Grid grid, int rows, int width) {
  const Pass pass = *static_cast<const Pass*>(argument);
  return [=] {
    for (unsigned y = 0; y < grid.height; ++y) {
      for (unsigned x = 0; x < grid.width; ++x) {
        if (x < static_cast<unsigned>(width) && y < static_cast<unsigned>(rows))
          pass(static_cast<int>(y), static_cast<int>(x));
      }
    }
  };
}

fake_cuda::Work work_of(void* function, const void* argument, Grid grid) {
  if (function == &across) {
    const auto& pass = *static_cast<const flashcodec::AcrossPass*>(argument);
    return threads_of<flashcodec::AcrossPass>(argument, grid, pass.out.rows, pass.out.width);
  }
  const auto& pass = *static_cast<const flashcodec::DownPass*>(argument);
  return threads_of<flashcodec::DownPass>(argument, grid, pass.canvas.height, pass.canvas.width);
}

bool reaches_all(void* function, const void* argument) {
  if (function != &across) {
    const auto& pass = *static_cast<const flashcodec::DownPass*>(argument);
    return fake_cuda::reaches(pass.in.data) && fake_cuda::reaches(pass.group);
  }
  const auto& pass = *static_cast<const flashcodec::AcrossPass*>(argument);
  return fake_cuda::reaches(pass.out.data);
}

}  // namespace

extern "C" {

int cuModuleLoadData(void** loaded, const void* image) {
  if (image == nullptr) return kInvalidValue;
  return *loaded = &module, kSuccess;
}

int cuModuleUnload(void* loaded) { return loaded == &module ? kSuccess : kInvalidValue; }

int cuModuleGetFunction(void** function, void* /*loaded*/, const char* name) {
  *function = std::string_view(name) == "across_pass" ? &across
              : std::string_view(name) == "down_pass" ? &down
                                                      : nullptr;
  return *function == nullptr ? kNotFound : kSuccess;
}

int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned /*shared*/, void* stream, void** arguments,
                   void** extra) {
  void* context = nullptr;
  if (cuCtxGetCurrent(&context) != kSuccess || context == nullptr) return kInvalidContext;
  if (grid_z != 1 || block_z != 1 || block_x * block_y > 1024 || extra != nullptr) return kInvalidValue;
  if (!fake_cuda::is_own(stream)) return kInvalidHandle;
  if (!reaches_all(function, arguments[0])) return kIllegalAddress;
  fake_cuda::give(stream, work_of(function, arguments[0], {grid_x * block_x, grid_y * block_y}));
  return kSuccess;
}

}  // extern "C"
