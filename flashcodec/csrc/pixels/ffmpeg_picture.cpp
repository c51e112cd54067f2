#include "pixels/ffmpeg_picture.h"

#include <algorithm>
#include <string>

extern "C" {
#include <libavutil/frame.h>
#include <libavutil/hwcontext.h>
#include <libavutil/pixdesc.h>
}

namespace flashcodec {

namespace {

// Grey samples of whole numbers, with or without transparency.
bool is_gray(const AVPixFmtDescriptor& format) {
  constexpr uint64_t kOther = AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BITSTREAM |
                              AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_FLOAT;
  return (format.flags & kOther) == 0 && format.nb_components <= 2 && format.comp[0].depth <= 16;
}

// The range that libswscale assumes where the picture tells none.
bool is_full_range_by_default(AVPixelFormat format) {
  switch (format) {
    case AV_PIX_FMT_YUVJ420P:
    case AV_PIX_FMT_YUVJ422P:
    case AV_PIX_FMT_YUVJ444P:
    case AV_PIX_FMT_YUVJ440P:
    case AV_PIX_FMT_YUVJ411P:
      return true;
    default:
      break;
  }
  const AVPixFmtDescriptor* samples = av_pix_fmt_desc_get(format);
  return samples != nullptr && is_gray(*samples);
}

bool is_full_range(const AVFrame& frame) {
  if (frame.color_range != AVCOL_RANGE_UNSPECIFIED) return frame.color_range == AVCOL_RANGE_JPEG;
  return is_full_range_by_default(static_cast<AVPixelFormat>(frame.format));
}

// Whole samples of YUV in this machine's byte order.
bool is_yuv(const AVPixFmtDescriptor& format) {
  constexpr uint64_t kOther = AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_BE | AV_PIX_FMT_FLAG_PAL |
                              AV_PIX_FMT_FLAG_BITSTREAM | AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_FLOAT;
  return (format.flags & kOther) == 0 && (format.flags & AV_PIX_FMT_FLAG_PLANAR) != 0 && format.nb_components >= 3;
}

bool is_plain_yuv(const AVPixFmtDescriptor& format) {
  if (!is_yuv(format)) return false;
  for (int i = 0; i < 3; ++i) {
    const AVComponentDescriptor& part = format.comp[i];
    const int bytes = part.depth > 8 ? 2 : 1;
    if (part.plane != i || part.step != bytes || part.offset != 0 || part.shift != 0) return false;
    if (part.depth < 8 || part.depth > 14) return false;
  }
  return true;
}

}  // namespace

PictureFormat format_of(int pixels, int matrix, bool full_range) {
  PictureFormat format{.pixels = pixels, .matrix = matrix, .full_range = full_range};
  const AVPixFmtDescriptor* samples = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(pixels));
  if (samples == nullptr) return format;
  format.plain_yuv = is_plain_yuv(*samples);
  format.bit_depth = samples->comp[0].depth;
  format.chroma_shift_x = samples->log2_chroma_w;
  format.chroma_shift_y = samples->log2_chroma_h;
  return format;
}

Picture picture_of(const AVFrame& frame) {
  const auto* frames =
      frame.hw_frames_ctx == nullptr ? nullptr : reinterpret_cast<const AVHWFramesContext*>(frame.hw_frames_ctx->data);
  const auto pixels = frames == nullptr ? static_cast<AVPixelFormat>(frame.format) : frames->sw_format;
  Picture picture{.format = format_of(pixels, frame.colorspace, is_full_range(frame)),
                  .width = frame.width,
                  .height = frame.height};
  std::copy_n(frame.data, picture.planes.size(), picture.planes.begin());
  std::copy_n(frame.linesize, picture.strides.size(), picture.strides.begin());
  return picture;
}

std::optional<Surface> surface_of(const Picture& picture) {
  const AVPixFmtDescriptor* format = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(picture.format.pixels));
  if (format == nullptr || !is_yuv(*format)) return std::nullopt;
  if (format->log2_chroma_w > 1 || format->log2_chroma_h > format->log2_chroma_w) return std::nullopt;
  const AVComponentDescriptor& luma = format->comp[0];
  for (int i = 1; i < 3; ++i) {
    if (format->comp[i].depth != luma.depth || format->comp[i].shift != luma.shift) return std::nullopt;
  }
  if (luma.depth < 8 || (luma.depth == 8 && luma.shift != 0)) return std::nullopt;
  const auto component = [&](int i) {
    const AVComponentDescriptor& part = format->comp[i];
    return Component{picture.planes[part.plane] + part.offset, picture.strides[part.plane], part.step};
  };
  return Surface{.luma = component(0),
                 .u = component(1),
                 .v = component(2),
                 .width = picture.width,
                 .height = picture.height,
                 .chroma_shift_x = format->log2_chroma_w,
                 .chroma_shift_y = format->log2_chroma_h,
                 .bit_depth = luma.depth,
                 .empty_bits = luma.shift};
}

PictureFormat planar_format(const PictureFormat& format) {
  const std::string subsampling = format.chroma_shift_x == 0 ? "444" : format.chroma_shift_y == 0 ? "422" : "420";
  const std::string bits = format.bit_depth == 8 ? "" : std::to_string(format.bit_depth) + "le";
  const AVPixelFormat pixels = av_get_pix_fmt(("yuv" + subsampling + "p" + bits).c_str());
  return format_of(pixels, format.matrix, format.full_range);
}

}  // namespace flashcodec
