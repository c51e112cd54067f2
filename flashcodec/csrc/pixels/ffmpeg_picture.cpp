#include "pixels/ffmpeg_picture.h"

#include <algorithm>

extern "C" {
#include <libavutil/frame.h>
#include <libavutil/pixdesc.h>
}

namespace flashcodec {

namespace {

bool is_full_range(const AVFrame& frame) {
  if (frame.color_range != AVCOL_RANGE_UNSPECIFIED) return frame.color_range == AVCOL_RANGE_JPEG;
  const auto format = static_cast<AVPixelFormat>(frame.format);
  return format == AV_PIX_FMT_YUVJ420P || format == AV_PIX_FMT_YUVJ422P || format == AV_PIX_FMT_YUVJ444P ||
         format == AV_PIX_FMT_YUVJ440P || format == AV_PIX_FMT_YUVJ411P;
}

bool is_plain_yuv(const AVPixFmtDescriptor& format) {
  constexpr uint64_t kOther = AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_BE | AV_PIX_FMT_FLAG_PAL |
                              AV_PIX_FMT_FLAG_BITSTREAM | AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_FLOAT;
  if ((format.flags & kOther) != 0 || (format.flags & AV_PIX_FMT_FLAG_PLANAR) == 0 || format.nb_components < 3) {
    return false;
  }
  for (int i = 0; i < 3; ++i) {
    const AVComponentDescriptor& part = format.comp[i];
    const int bytes = part.depth > 8 ? 2 : 1;
    if (part.plane != i || part.step != bytes || part.offset != 0 || part.shift != 0) return false;
    if (part.depth < 8 || part.depth > 14) return false;
  }
  return true;
}

PictureFormat format_of(const AVFrame& frame) {
  PictureFormat format{.pixels = frame.format, .matrix = frame.colorspace, .full_range = is_full_range(frame)};
  const AVPixFmtDescriptor* samples = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(frame.format));
  if (samples == nullptr) return format;
  format.plain_yuv = is_plain_yuv(*samples);
  format.bit_depth = samples->comp[0].depth;
  format.chroma_shift_x = samples->log2_chroma_w;
  format.chroma_shift_y = samples->log2_chroma_h;
  return format;
}

}  // namespace

Picture picture_of(const AVFrame& frame) {
  Picture picture{.format = format_of(frame), .width = frame.width, .height = frame.height};
  std::copy_n(frame.data, picture.planes.size(), picture.planes.begin());
  std::copy_n(frame.linesize, picture.strides.size(), picture.strides.begin());
  return picture;
}

}  // namespace flashcodec
