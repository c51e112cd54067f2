// JPEGs to groups in a GPU's memory.
#pragma once

#include <optional>
#include <span>

#include "engines/nvdec/gpu_points.h"
#include "pixels/layout.h"
#include "pixels/points/point_writer.h"

namespace flashcodec {

// By the GPU's hardware for it. One thread uses it.
class JpegDecoder {
 public:
  // Throws native::cuda::CudaError if the GPU has no such hardware or it cannot be used.
  explicit JpegDecoder(int gpu);
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  int gpu() const { return points_.gpu()->number(); }

  // Return a group of the layout all of whose frames are this picture turned upright; null for what the hardware does
  // not decode, which includes damaged, progressive and grey ones. Throws native::cuda::CudaError.
  std::shared_ptr<uint8_t[]> decode(std::span<const unsigned char> jpeg, Orientation orientation, const Layout& layout);

 private:
  struct Undone {};
  JpegDecoder(int gpu, Undone undone);

  // The picture's planes of red, green and blue.
  std::optional<Surface> decode_planes(std::span<const unsigned char> jpeg);

  GpuPoints points_;
  PointWriter writer_;
  void* handle_ = nullptr;
  void* state_ = nullptr;
  void* stream_ = nullptr;
  std::shared_ptr<uint8_t[]> planes_;
  size_t planes_bytes_ = 0;
};

}  // namespace flashcodec
