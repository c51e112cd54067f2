#include "engines/nvjpeg/jpeg_decoder.h"

#include <array>
#include <string>
#include <vector>

#include "engines/nvjpeg/nvjpeg_library.h"

namespace flashcodec {

using native::cuda::CudaError;

namespace {

constexpr size_t kRowAlignment = 256;

void check(const char* function, int status) {
  if (status != 0) throw CudaError(std::string(function) + " failed with status " + std::to_string(status));
}

}  // namespace

JpegDecoder::JpegDecoder(int gpu, Undone /*unused*/) : points_(std::make_shared<Gpu>(gpu)), writer_(points_) {}

JpegDecoder::JpegDecoder(int gpu) : JpegDecoder(gpu, Undone{}) {
  const NvjpegLibrary& library = NvjpegLibrary::get();
  const auto now = points_.gpu()->current();
  if (library.create.pointer(kNvjpegHardware, nullptr, nullptr, kNvjpegSmoothChroma, &handle_) != 0) {
    handle_ = nullptr;
    throw CudaError("cuda:" + std::to_string(gpu) + " has no hardware for JPEG that nvJPEG can use");
  }
  check(library.create_state.name, library.create_state.pointer(handle_, &state_));
  points_.gpu()->driver().call(points_.gpu()->functions().stream_create, &stream_, 0U);
}

JpegDecoder::~JpegDecoder() {
  const GpuPtr& gpu = points_.gpu();
  if (handle_ == nullptr || !gpu->driver().is_usable()) return;
  try {
    const auto now = gpu->current();
    if (stream_ != nullptr) gpu->functions().stream_destroy.pointer(stream_);
    if (state_ != nullptr) NvjpegLibrary::get().destroy_state.pointer(state_);
    NvjpegLibrary::get().destroy.pointer(handle_);
  } catch (const CudaError&) {  // the driver has shut down
  }
}

std::shared_ptr<uint8_t[]> JpegDecoder::decode(std::span<const unsigned char> jpeg, Orientation orientation,
                                               const Layout& layout) {
  const std::optional<Surface> surface = decode_planes(jpeg);
  if (!surface) return nullptr;
  std::shared_ptr<uint8_t[]> group = points_.gpu()->take(layout.group_bytes());
  std::vector<Place> places;
  places.reserve(layout.group_frames());
  for (int slot = 0; slot < layout.group_frames(); ++slot) places.push_back({group.get(), slot});
  writer_.write_rgb(*surface, orientation, layout, places);
  points_.fence();
  return group;
}

std::optional<Surface> JpegDecoder::decode_planes(std::span<const unsigned char> jpeg) {
  const NvjpegLibrary& library = NvjpegLibrary::get();
  const auto now = points_.gpu()->current();
  int components = 0;
  int subsampling = 0;
  std::array<int, 4> widths{};
  std::array<int, 4> heights{};
  const int known = library.get_info.pointer(handle_, jpeg.data(), jpeg.size(), &components, &subsampling,
                                             widths.data(), heights.data());
  if (known != 0 || components != 3 || widths[0] <= 0 || heights[0] <= 0) return std::nullopt;
  const size_t pitch = (static_cast<size_t>(widths[0]) + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  const size_t plane = pitch * static_cast<size_t>(heights[0]);
  if (planes_bytes_ < 3 * plane) {
    planes_ = points_.gpu()->take(3 * plane);
    planes_bytes_ = 3 * plane;
  }
  uint8_t* const first = planes_.get();
  NvjpegImage image{{first, first + plane, first + 2 * plane, nullptr}, {pitch, pitch, pitch, 0}};
  const int done = library.decode.pointer(handle_, state_, jpeg.data(), jpeg.size(), kNvjpegPlanarRgb, &image, stream_);
  points_.gpu()->driver().call(points_.gpu()->functions().stream_synchronize, stream_);
  if (done != 0) return std::nullopt;
  const auto component = [&](int i) { return Component{image.channel[i], static_cast<int64_t>(pitch), 1}; };
  return Surface{.luma = component(0),
                 .u = component(1),
                 .v = component(2),
                 .width = widths[0],
                 .height = heights[0],
                 .chroma_shift_x = 0,
                 .chroma_shift_y = 0,
                 .bit_depth = 8,
                 .empty_bits = 0};
}

}  // namespace flashcodec
