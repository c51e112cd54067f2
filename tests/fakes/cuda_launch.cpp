// The part of the stand-in for libcuda that runs work: streams that do what they are told when somebody waits for them,
// and FlashCodec's kernels, each thread in its turn.
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "pixels/points/passes.h"

namespace {

enum Result { kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201, kNotFound = 500 };
using Work = std::function<void()>;

struct Stream {
  std::vector<Work> work;
};

struct Grid {
  unsigned width;
  unsigned height;
};

int across = 0;
int down = 0;
int module = 0;
std::mutex lock;
std::map<void*, Stream> streams;

template <class Pass>
Work threads_of(const void* argument, Grid grid, int rows, int width) {
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

}  // namespace

extern "C" {

int cuCtxSynchronize();

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

int cuStreamCreate(void** stream, unsigned /*flags*/) {
  const std::lock_guard held(lock);
  if (cuCtxSynchronize() != kSuccess) return kInvalidContext;
  static char number[1024];
  static int next = 0;
  *stream = &number[++next % 1024];
  streams[*stream];
  return kSuccess;
}

int cuStreamSynchronize(void* stream) {
  std::vector<Work> work;
  {
    const std::lock_guard held(lock);
    if (cuCtxSynchronize() != kSuccess) return kInvalidContext;
    work.swap(streams[stream].work);
  }
  for (const Work& step : work) step();
  return kSuccess;
}

int cuStreamDestroy_v2(void* stream) {
  const std::lock_guard held(lock);
  return streams.erase(stream) == 1 ? kSuccess : kInvalidValue;
}

int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned /*shared*/, void* stream, void** arguments,
                   void** extra) {
  const std::lock_guard held(lock);
  if (cuCtxSynchronize() != kSuccess) return kInvalidContext;
  if (grid_z != 1 || block_z != 1 || block_x * block_y > 1024 || extra != nullptr) return kInvalidValue;
  const Grid grid{grid_x * block_x, grid_y * block_y};
  if (function == &across) {
    const auto& pass = *static_cast<const flashcodec::AcrossPass*>(arguments[0]);
    streams[stream].work.push_back(
        threads_of<flashcodec::AcrossPass>(arguments[0], grid, pass.out.rows, pass.out.width));
  } else {
    const auto& pass = *static_cast<const flashcodec::DownPass*>(arguments[0]);
    streams[stream].work.push_back(
        threads_of<flashcodec::DownPass>(arguments[0], grid, pass.canvas.height, pass.canvas.width));
  }
  return kSuccess;
}

}  // extern "C"
