// The passes of points/passes.h on a GPU.
#pragma once

#include <span>
#include <vector>

#include "engines/nvdec/gpu_stream.h"
#include "pixels/points/point_device.h"

namespace flashcodec {

// The machine code of point_kernels.cu for the GPUs that it was compiled for; empty where the build had no nvcc.
std::span<const unsigned char> point_kernels();

// One engine's stream of work on a GPU. One thread uses it.
class GpuPoints : public PointDevice {
 public:
  // Throws native::cuda::CudaError if the GPU cannot run the kernels.
  explicit GpuPoints(GpuPtr gpu, StreamOrder order = StreamOrder::kAlone);
  ~GpuPoints() override;
  GpuPoints(const GpuPoints&) = delete;
  GpuPoints& operator=(const GpuPoints&) = delete;

  std::shared_ptr<const std::byte> upload(std::span<const std::byte> table) override;
  uint8_t* scratch(size_t bytes) override;
  void run(const AcrossPass& pass) override;
  void run(const DownPass& pass) override;

  const GpuPtr& gpu() const { return stream_.gpu(); }
  // Return when all is done.
  void fence();
  // Do work that runs passes. Return when these are done, or throw what the work has thrown.
  template <class Work>
  void finish(Work work) {
    try {
      work();
    } catch (...) {
      fence();  // passes that it has run use memory that goes with the exception
      throw;
    }
    fence();
  }

 private:
  // Its destructor undoes what a constructor that goes on from it has done.
  struct Unloaded {};
  GpuPoints(GpuPtr gpu, StreamOrder order, Unloaded unloaded);

  template <class Pass>
  void launch(void* kernel, const Pass& pass, int rows, int width);

  std::shared_ptr<uint8_t[]> scratch_;
  size_t scratch_bytes_ = 0;
  std::vector<std::vector<std::byte>> uploads_;  // since the fence: the driver may read them until then
  GpuStream stream_;
  void* module_ = nullptr;
  void* across_ = nullptr;
  void* down_ = nullptr;
};

}  // namespace flashcodec
