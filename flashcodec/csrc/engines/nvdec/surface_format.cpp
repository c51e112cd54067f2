#include "engines/nvdec/surface_format.h"

#include <cstddef>
#include <string>

extern "C" {
#include <libavutil/pixdesc.h>
}

namespace flashcodec {

namespace {

constexpr int k420 = 1;
constexpr int k422 = 2;

}  // namespace

// cudaVideoSurfaceFormat: NV12, P016, YUV444, YUV444_16Bit, NV16, P216.
int SurfaceFormat::number() const {
  const int first = chroma == k420 ? 0 : chroma == k422 ? 4 : 2;
  return bit_depth > 8 ? first + 1 : first;
}

// What is not 8 bits is in the highest bits of 16.
int SurfaceFormat::pixels() const {
  const std::string bits = std::to_string(bit_depth);
  switch (chroma) {
    case k420:
      return av_get_pix_fmt(bit_depth == 8 ? "nv12" : ("p0" + bits + "le").c_str());
    case k422:
      return av_get_pix_fmt(bit_depth == 8 ? "nv16" : ("p2" + bits + "le").c_str());
    default:
      return av_get_pix_fmt(bit_depth == 8 ? "yuv444p" : ("yuv444p" + bits + "msble").c_str());
  }
}

Picture SurfaceFormat::picture(const PictureFormat& format, const uint8_t* data, int pitch, int width,
                               int height) const {
  Picture picture{.format = format, .width = width, .height = height};
  const int planes = chroma == k420 || chroma == k422 ? 2 : 3;
  for (int i = 0; i < planes; ++i) {
    picture.planes[i] = data + static_cast<ptrdiff_t>(i) * pitch * height;
    picture.strides[i] = pitch;
  }
  return picture;
}

}  // namespace flashcodec
