#include "pixels/rgb_scaler.h"

#include <array>
#include <stdexcept>
#include <string>

extern "C" {
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

namespace flashcodec {

SwsContext* RgbScaler::make_context(const Pair& pair) {
  const auto pixels = static_cast<AVPixelFormat>(pair.format.pixels);
  const AVPixelFormat rgb = pair.depth == RgbDepth::k8 ? AV_PIX_FMT_RGB24 : AV_PIX_FMT_RGB48;
  SwsContext* context = sws_getContext(pair.width, pair.height, pixels, pair.target_width, pair.target_height, rgb, 0,
                                       nullptr, nullptr, nullptr);
  if (context == nullptr) {
    const char* name = av_get_pix_fmt_name(pixels);
    throw std::runtime_error(std::string("pixel format ") + (name != nullptr ? name : "?") + " cannot be converted");
  }
  const int* matrix = sws_getCoefficients(pair.format.matrix);
  sws_setColorspaceDetails(context, matrix, pair.format.full_range ? 1 : 0, matrix, 1, 0, 1 << 16, 1 << 16);
  return context;
}

void RgbScaler::Free::operator()(SwsContext* context) const { sws_freeContext(context); }

void RgbScaler::convert(const Picture& picture, const RgbTarget& target) {
  const Pair pair{picture.format, picture.width, picture.height, target.width, target.height, target.depth};
  if (context_ == nullptr || made_for_ != pair) {
    context_.reset(make_context(pair));
    made_for_ = pair;
  }
  const std::array<uint8_t*, 4> planes{target.data};
  const std::array<int, 4> strides{static_cast<int>(target.stride)};
  const int rows = sws_scale(context_.get(), picture.planes.data(), picture.strides.data(), 0, picture.height,
                             planes.data(), strides.data());
  if (rows != target.height) throw std::runtime_error("libswscale failed");
}

}  // namespace flashcodec
