// A decoder of NVDEC's, which takes long to make.
#pragma once

#include <memory>

#include "engines/nvdec/cuvid_library.h"
#include "engines/nvdec/gpu_stream.h"

namespace flashcodec {

// The streams that a decoder decodes.
struct DecoderShape {
  int codec = 0;  // and chroma: in NVIDIA's numbers
  int chroma = 0;
  int bit_depth = 0;
  int surfaces = 0;  // that pictures are decoded to
  int coded_width = 0;
  int coded_height = 0;
  int left = 0;  // what is shown of it
  int top = 0;
  int width = 0;
  int height = 0;

  bool operator==(const DecoderShape&) const = default;
};

// A picture copied out of a decoder, in the GPU's memory as long as this is here.
class MappedPicture {
 public:
  MappedPicture(GpuStream& stream, void* decoder, const CuvidShown& shown);
  ~MappedPicture();
  MappedPicture(const MappedPicture&) = delete;
  MappedPicture& operator=(const MappedPicture&) = delete;

  const uint8_t* data() const;
  int pitch() const { return static_cast<int>(pitch_); }

 private:
  GpuPtr gpu_;
  void* decoder_;
  native::cuda::Address address_ = 0;
  unsigned pitch_ = 0;
};

// What it throws is native::cuda::CudaError.
class HardwareDecoder {
 public:
  HardwareDecoder(GpuPtr gpu, const DecoderShape& shape);
  ~HardwareDecoder();
  HardwareDecoder(const HardwareDecoder&) = delete;
  HardwareDecoder& operator=(const HardwareDecoder&) = delete;

  // Whether it can be told to decode such streams, which takes a tenth of what making one does.
  bool can_become(const DecoderShape& shape) const;
  // Nothing of it is mapped.
  void become(const DecoderShape& shape);
  const DecoderShape& shape() const { return shape_; }

  // Begin to decode what the parser gave.
  void decode(CuvidPicture& picture);
  // Wait for a picture, and copy it out. No more than kMostMapped may be there at a time.
  std::unique_ptr<MappedPicture> map(const CuvidShown& shown);
  // Whether something went wrong with the picture last decoded to a surface, as far as is known by now.
  bool failed(int surface) const;

  static constexpr int kMostMapped = 4;

 private:
  const GpuPtr& gpu() const { return stream_.gpu(); }

  GpuStream stream_;  // on which pictures are copied out
  DecoderShape shape_;
  int max_width_;
  int max_height_;
  void* decoder_ = nullptr;
};

}  // namespace flashcodec
