#include "copy_path.h"

#include <cstring>

#include "cuda/copy_stream.h"

namespace ipc {
namespace {

class HostPath : public CopyPath {
 public:
  // So that whoever closes a transfer waits for a moment only, and several threads share it.
  std::size_t piece_bytes() const override { return std::size_t{2} << 20; }

  void copy(std::span<const CopyRun> runs) override {
    for (const auto& run : runs) std::memcpy(run.to, run.from, run.bytes);
  }
};

class GpuPath : public CopyPath {
 public:
  explicit GpuPath(int gpu) : stream_(gpu) {}

  // A copy is begun by a call of the driver's; one event fences all of a piece.
  std::size_t piece_bytes() const override { return std::size_t{64} << 20; }

  void copy(std::span<const CopyRun> runs) override { stream_.copy(runs); }

 private:
  cuda::CopyStream stream_;
};

}  // namespace

std::shared_ptr<CopyPath> path_between(const Memory& source, const Memory& target) {
  const auto from = source.place(), to = target.place();
  if (from.gpu.has_value() != to.gpu.has_value()) {
    throw ArenaError("memory '" + source.identity().name + "' is on " + from.text() + ", '" + target.identity().name +
                     "' on " + to.text() + ": no path leads from one to the other");
  }
  if (to.gpu) return std::make_shared<GpuPath>(*to.gpu);
  return std::make_shared<HostPath>();
}

}  // namespace ipc
