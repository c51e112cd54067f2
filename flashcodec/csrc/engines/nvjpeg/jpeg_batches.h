// JPEGs of several threads, decoded together.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>

#include "engines/nvjpeg/jpeg_hardware.h"

namespace flashcodec {

// While one batch is decoded the next one gathers: a thread that finds the hardware free decodes all that waits, and
// the more there is the less a picture takes. Any thread may use it.
class JpegBatches {
 public:
  // Throws native::cuda::CudaError if the GPU has no hardware for JPEG or it cannot be used.
  explicit JpegBatches(GpuPtr gpu) : hardware_(std::move(gpu)) {}

  // Return a picture's planes; nothing if the hardware does not decode it. Throws native::cuda::CudaError.
  std::optional<JpegPlanes> decode(std::span<const unsigned char> bytes);

 private:
  struct Waiting {
    Jpeg jpeg;
    std::optional<JpegPlanes> planes{};
    std::exception_ptr error{};
    bool done = false;
  };

  void decode_all(std::span<Waiting* const> batch);

  JpegHardware hardware_;
  std::mutex mutex_;
  std::condition_variable freed_;  // the hardware, which has decoded a batch
  bool busy_ = false;
  std::vector<Waiting*> waiting_;
};

}  // namespace flashcodec
