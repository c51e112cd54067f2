#include "engines/nvjpeg/jpeg_hardware.h"

#include <array>
#include <string>

#include "engines/nvjpeg/nvjpeg_library.h"

namespace flashcodec {

using native::cuda::CudaError;

namespace {

constexpr size_t kRowAlignment = 256;
constexpr int kThreads = 1;  // of this machine's, which the hardware leaves without work

void check(const char* function, int status) {
  if (status != 0) throw CudaError(std::string(function) + " failed with status " + std::to_string(status));
}

NvjpegImage image_of(const Surface& surface) {
  const auto plane = [](const Component& component) { return const_cast<unsigned char*>(component.data); };
  const auto pitch = static_cast<size_t>(surface.luma.stride);
  return {{plane(surface.luma), plane(surface.u), plane(surface.v), nullptr}, {pitch, pitch, pitch, 0}};
}

}  // namespace

JpegHardware::JpegHardware(GpuPtr gpu, Undone /*unused*/) : stream_(std::move(gpu)) {}

JpegHardware::JpegHardware(GpuPtr gpu) : JpegHardware(std::move(gpu), Undone{}) {
  const NvjpegLibrary& library = NvjpegLibrary::get();
  const auto now = stream_.gpu()->current();
  const int status = library.create.pointer(kNvjpegHardware, nullptr, nullptr, kNvjpegSmoothChroma, &handle_);
  if (status != 0) {
    handle_ = nullptr;
    throw CudaError("cuda:" + std::to_string(stream_.gpu()->number()) +
                    " has no hardware for JPEG that nvJPEG can use (status " + std::to_string(status) +
                    "): in a container, NVIDIA_DRIVER_CAPABILITIES must have 'video'");
  }
  check(library.create_state.name, library.create_state.pointer(handle_, &state_));
  check(library.create_header.name, library.create_header.pointer(handle_, &header_));
}

JpegHardware::~JpegHardware() {
  if (handle_ == nullptr || !stream_.gpu()->driver().is_usable()) return;
  const NvjpegLibrary& library = NvjpegLibrary::get();
  try {
    const auto now = stream_.gpu()->current();
    if (header_ != nullptr) library.destroy_header.pointer(header_);
    if (state_ != nullptr) library.destroy_state.pointer(state_);
    library.destroy.pointer(handle_);
  } catch (const CudaError&) {  // the driver has shut down
  }
}

std::optional<Jpeg> JpegHardware::inspect(std::span<const unsigned char> bytes) {
  const NvjpegLibrary& library = NvjpegLibrary::get();
  const auto now = stream_.gpu()->current();
  int refused = 1;
  if (library.parse_header.pointer(handle_, bytes.data(), bytes.size(), header_) != 0 ||
      library.supports.pointer(handle_, header_, &refused) != 0 || refused != 0) {
    return std::nullopt;
  }
  int components = 0;
  int subsampling = 0;
  std::array<int, 4> widths{};
  std::array<int, 4> heights{};
  const int known = library.get_info.pointer(handle_, bytes.data(), bytes.size(), &components, &subsampling,
                                             widths.data(), heights.data());
  if (known != 0 || components != 3 || widths[0] <= 0 || heights[0] <= 0) return std::nullopt;
  return Jpeg{bytes, widths[0], heights[0]};
}

JpegPlanes JpegHardware::planes_for(const Jpeg& jpeg) const {
  const size_t pitch = (static_cast<size_t>(jpeg.width) + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  const size_t plane = pitch * static_cast<size_t>(jpeg.height);
  std::shared_ptr<uint8_t[]> memory = stream_.gpu()->take(3 * plane);
  const auto component = [&](size_t i) { return Component{memory.get() + i * plane, static_cast<int64_t>(pitch), 1}; };
  const Surface surface{.luma = component(0),
                        .u = component(1),
                        .v = component(2),
                        .width = jpeg.width,
                        .height = jpeg.height,
                        .chroma_shift_x = 0,
                        .chroma_shift_y = 0,
                        .bit_depth = 8,
                        .empty_bits = 0};
  return {std::move(memory), surface};
}

std::vector<std::optional<JpegPlanes>> JpegHardware::decode(std::span<const Jpeg> jpegs) {
  std::vector<JpegPlanes> planes;
  for (const Jpeg& jpeg : jpegs) planes.push_back(planes_for(jpeg));
  if (decode_batch(jpegs, planes)) return {planes.begin(), planes.end()};
  std::vector<std::optional<JpegPlanes>> found(jpegs.size());
  for (size_t i = 0; i < jpegs.size() && jpegs.size() > 1; ++i) {  // a damaged one spoils all of its batch
    if (decode_batch(jpegs.subspan(i, 1), std::span(planes).subspan(i, 1))) found[i] = planes[i];
  }
  return found;
}

// The hardware writes at once, not in the order of the stream (H100, nvJPEG 12.3 to 13.2, by TorchCodec's authors):
// what it writes to must be free by then.
bool JpegHardware::decode_batch(std::span<const Jpeg> jpegs, std::span<const JpegPlanes> planes) {
  const NvjpegLibrary& library = NvjpegLibrary::get();
  std::vector<const unsigned char*> data;
  std::vector<size_t> sizes;
  std::vector<NvjpegImage> images;
  for (size_t i = 0; i < jpegs.size(); ++i) {
    data.push_back(jpegs[i].bytes.data());
    sizes.push_back(jpegs[i].bytes.size());
    images.push_back(image_of(planes[i].surface));
  }
  const auto now = stream_.gpu()->current();
  const auto count = static_cast<int>(jpegs.size());
  check(library.begin.name, library.begin.pointer(handle_, state_, count, kThreads, kNvjpegPlanarRgb));
  const int done = library.decode.pointer(handle_, state_, data.data(), sizes.data(), images.data(), stream_.handle());
  stream_.fence();
  return done == 0;
}

}  // namespace flashcodec
