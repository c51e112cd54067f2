// Groups written by the engine's own thread, into ordinary memory.
#pragma once

#include "engines/backend.h"
#include "pixels/deep_rgb.h"
#include "pixels/frame_writer.h"

namespace flashcodec {

class CpuWriter : public GroupWriter {
 public:
  std::optional<int> gpu() const override { return std::nullopt; }
  std::shared_ptr<uint8_t[]> take(size_t bytes) override;
  size_t group_bytes(const Picture& picture, const Layout& layout) const override;
  void write(const Picture& picture, Orientation orientation, const Layout& layout,
             std::span<const Place> places) override;
  bool in_place() const override { return true; }
  std::shared_ptr<uint8_t[]> finish(std::shared_ptr<uint8_t[]> group, size_t /*bytes*/, uint8_t* /*out*/) override {
    return group;
  }

 private:
  FrameWriter frames_;
  DeepRgb deep_;
};

}  // namespace flashcodec
