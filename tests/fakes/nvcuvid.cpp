// A stand-in for libnvcuvid: what two NVDEC units of an H100's kind say that they decode. It decodes nothing.
#include <algorithm>
#include <array>

namespace {

struct Caps {
  int codec;
  int chroma;
  unsigned bit_depth_minus_8;
  std::array<unsigned, 3> reserved1;
  unsigned char supported;
  unsigned char engines;
  unsigned short output_formats;
  unsigned max_width;
  unsigned max_height;
  unsigned max_macroblocks;
  unsigned short min_width;
  unsigned short min_height;
  std::array<unsigned, 11> rest;
};

constexpr int kH264 = 4;
constexpr int kHevc = 8;
constexpr int k420 = 1;

}  // namespace

extern "C" int cuvidGetDecoderCaps(Caps* caps) {
  const bool known = caps->codec == kH264 || caps->codec == kHevc;
  caps->supported = known && caps->chroma == k420 && caps->bit_depth_minus_8 <= (caps->codec == kHevc ? 4U : 0U);
  if (caps->supported == 0) return 0;
  caps->engines = 2;
  caps->max_width = caps->max_height = 4096;
  caps->max_macroblocks = 65536;
  caps->min_width = caps->min_height = 48;
  return 0;
}
