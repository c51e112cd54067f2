// What a GPU's NVDEC engines decode.
#pragma once

#include <tuple>

#include "bitstream/bitstream.h"
#include "engines/nvdec/cuvid_library.h"
#include "engines/nvdec/gpu.h"

namespace flashcodec {

// NVIDIA's number of FFmpeg's codec; -1 for those that are left to cores.
int cuvid_codec(AVCodecID codec);

// The answer of cuvidGetDecoderCaps for a codec and format; all 0 if it decodes none such.
struct DecoderCaps {
  int engines = 0;
  int min_width = 0;
  int min_height = 0;
  int max_width = 0;
  int max_height = 0;
  int64_t max_macroblocks = 0;
  unsigned output_formats = 0;  // a bit for each
};

// Asks libnvcuvid, and remembers: to ask takes milliseconds. Any thread may use it.
class CapsTable {
 public:
  // Throws native::cuda::CudaError if there is no libnvcuvid.
  explicit CapsTable(GpuPtr gpu);

  // The most engines that any codec has.
  int engines() const { return engines_; }
  // Whether NVDEC decodes such pictures of a stream.
  bool decodes(const Bitstream& stream);

 private:
  // By NVIDIA's numbers of codecs and chroma formats.
  struct Key {
    int codec;
    int chroma;
    int bit_depth;

    bool operator<(const Key& other) const {
      return std::tie(codec, chroma, bit_depth) < std::tie(other.codec, other.chroma, other.bit_depth);
    }
  };

  const DecoderCaps& of(const Key& key);
  DecoderCaps ask(const Key& key) const;

  GpuPtr gpu_;
  const CuvidLibrary& library_;
  std::mutex mutex_;
  std::map<Key, DecoderCaps> known_;
  int engines_ = 0;
};

}  // namespace flashcodec
