// JPEGs to groups in a GPU's memory.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engines/nvdec/gpu_points.h"
#include "engines/nvjpeg/jpeg_batches.h"
#include "pixels/layout.h"
#include "pixels/points/point_writer.h"

namespace flashcodec {

// By the GPU's hardware for it, which decodes what threads have at hand at the same time in one go. Any thread may use
// it.
class JpegDecoder {
 public:
  // Throws native::cuda::CudaError if the GPU has no such hardware or it cannot be used.
  explicit JpegDecoder(int gpu);

  int gpu() const { return gpu_->number(); }

  // Return a group of the layout all of whose frames are this picture turned upright; null for what the hardware does
  // not decode, which includes damaged, progressive and grey ones. Throws native::cuda::CudaError.
  std::shared_ptr<uint8_t[]> decode(std::span<const unsigned char> jpeg, Orientation orientation, const Layout& layout);

 private:
  struct Writer {
    explicit Writer(GpuPtr gpu) : points(std::move(gpu)), writer(points) {}

    GpuPoints points;
    PointWriter writer;
  };

  std::unique_ptr<Writer> take_writer();

  GpuPtr gpu_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Writer>> writers_;  // that nobody uses at the moment
  JpegBatches batches_;
};

}  // namespace flashcodec
