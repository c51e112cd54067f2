// A GPU's hardware for JPEG, by nvJPEG.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engines/nvdec/gpu_stream.h"
#include "pixels/points/surface.h"

namespace flashcodec {

// A JPEG's bytes and size in pixels.
struct Jpeg {
  std::span<const unsigned char> bytes;
  int width;
  int height;
};

// A picture's planes of red, green and blue, in the GPU's memory as long as this is here.
struct JpegPlanes {
  std::shared_ptr<uint8_t[]> memory;
  Surface surface;
};

// Of nvJPEG's functions only those for batches reach the hardware: the plain ones decode in software.
class JpegHardware {
 public:
  // Throws native::cuda::CudaError if the GPU has no such hardware or it cannot be used.
  explicit JpegHardware(GpuPtr gpu);
  ~JpegHardware();
  JpegHardware(const JpegHardware&) = delete;
  JpegHardware& operator=(const JpegHardware&) = delete;

  // Read a header; nothing if the hardware does not decode the picture, as progressive and grey ones. One thread at a
  // time calls it, while another one may decode.
  std::optional<Jpeg> inspect(std::span<const unsigned char> bytes);
  // Decode what was inspected at once; nothing for what turns out to be damaged. One thread at a time calls it. Throws
  // native::cuda::CudaError.
  std::vector<std::optional<JpegPlanes>> decode(std::span<const Jpeg> jpegs);

 private:
  struct Undone {};
  JpegHardware(GpuPtr gpu, Undone undone);

  JpegPlanes planes_for(const Jpeg& jpeg) const;
  bool decode_batch(std::span<const Jpeg> jpegs, std::span<const JpegPlanes> planes);

  GpuStream stream_;
  void* handle_ = nullptr;
  void* state_ = nullptr;
  void* header_ = nullptr;
};

}  // namespace flashcodec
