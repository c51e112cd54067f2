#include "pixels/rgb_scaler.h"

#include <array>
#include <stdexcept>
#include <string>

extern "C" {
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

namespace flashcodec {

namespace {

SwsContext* make_context(const Picture& picture) {
  const auto pixels = static_cast<AVPixelFormat>(picture.format.pixels);
  SwsContext* context = sws_getContext(picture.width, picture.height, pixels, picture.width, picture.height,
                                       AV_PIX_FMT_RGB24, 0, nullptr, nullptr, nullptr);
  if (context == nullptr) {
    const char* name = av_get_pix_fmt_name(pixels);
    throw std::runtime_error(std::string("pixel format ") + (name != nullptr ? name : "?") + " cannot be converted");
  }
  const int* matrix = sws_getCoefficients(picture.format.matrix);
  sws_setColorspaceDetails(context, matrix, picture.format.full_range ? 1 : 0, matrix, 1, 0, 1 << 16, 1 << 16);
  return context;
}

}  // namespace

void RgbScaler::Free::operator()(SwsContext* context) const { sws_freeContext(context); }

bool RgbScaler::made_for(const Picture& picture) const {
  return context_ != nullptr && format_ == picture.format && width_ == picture.width && height_ == picture.height;
}

void RgbScaler::convert(const Picture& picture, uint8_t* rgb, size_t stride) {
  if (!made_for(picture)) {
    context_.reset(make_context(picture));
    format_ = picture.format;
    width_ = picture.width;
    height_ = picture.height;
  }
  const std::array<uint8_t*, 4> planes{rgb};
  const std::array<int, 4> strides{static_cast<int>(stride)};
  const int rows = sws_scale(context_.get(), picture.planes.data(), picture.strides.data(), 0, height_, planes.data(),
                             strides.data());
  if (rows != height_) throw std::runtime_error("libswscale failed");
}

}  // namespace flashcodec
