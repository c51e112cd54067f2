// Pictures to groups in a GPU's memory.
#pragma once

#include "engines/cpu/cpu_writer.h"
#include "engines/nvdec/gpu_points.h"
#include "pixels/points/point_writer.h"

namespace flashcodec {

// Writes what NVDEC has decoded, by the GPU's threads, from its memory to its memory.
class GpuWriter : public GroupWriter {
 public:
  GpuWriter(GpuPtr gpu, StreamOrder order) : points_(std::move(gpu), order), writer_(points_) {}

  std::optional<int> gpu() const override { return points_.gpu()->number(); }
  std::shared_ptr<uint8_t[]> take(size_t bytes) override { return points_.gpu()->take(bytes); }
  size_t group_bytes(const Picture& picture, const Layout& layout) const override;
  void write(const Picture& picture, Orientation orientation, const Layout& layout,
             std::span<const Place> places) override;
  bool in_place() const override { return true; }
  std::shared_ptr<uint8_t[]> finish(std::shared_ptr<uint8_t[]> group, size_t /*bytes*/, uint8_t* /*out*/) override {
    return group;
  }

 private:
  GpuPoints points_;
  PointWriter writer_;
};

// Writes what cores have decoded, in their memory, and copies each group that is complete.
class UploadingWriter : public CpuWriter {
 public:
  explicit UploadingWriter(GpuPtr gpu) : stream_(std::move(gpu)) {}

  std::optional<int> gpu() const override { return stream_.gpu()->number(); }
  bool in_place() const override { return false; }
  std::shared_ptr<uint8_t[]> finish(std::shared_ptr<uint8_t[]> group, size_t bytes, uint8_t* out) override;

 private:
  GpuStream stream_;
};

}  // namespace flashcodec
