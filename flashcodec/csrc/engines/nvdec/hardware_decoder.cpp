#include "engines/nvdec/hardware_decoder.h"

#include "engines/nvdec/surface_format.h"

namespace flashcodec {

using native::cuda::CudaError;

namespace {

int16_t narrow(int value) { return static_cast<int16_t>(value); }

CuvidArea<int16_t> shown_area(const DecoderShape& shape) {
  return {narrow(shape.left), narrow(shape.top), narrow(shape.left + shape.width), narrow(shape.top + shape.height)};
}

}  // namespace

MappedPicture::MappedPicture(GpuStream& stream, void* decoder, const CuvidShown& shown)
    : gpu_(stream.gpu()), decoder_(decoder) {
  CuvidMapping mapping{};
  mapping.progressive = shown.progressive;
  mapping.top_field_first = shown.top_field_first;
  mapping.unpaired_field = shown.repeat_first_field < 0 ? 1 : 0;
  mapping.stream = stream.handle();
  gpu_->driver().call(CuvidLibrary::get().map, decoder, shown.surface, &address_, &pitch_, &mapping);
}

MappedPicture::~MappedPicture() {
  try {
    const auto now = gpu_->current();
    CuvidLibrary::get().unmap.pointer(decoder_, address_);
  } catch (const CudaError&) {  // the driver has shut down
  }
}

const uint8_t* MappedPicture::data() const {
  return reinterpret_cast<const uint8_t*>(address_);  // NOLINT(performance-no-int-to-ptr): the driver's type
}

HardwareDecoder::HardwareDecoder(GpuPtr gpu, const DecoderShape& shape)
    : stream_(std::move(gpu)), shape_(shape), max_width_(shape.coded_width), max_height_(shape.coded_height) {
  const auto now = stream_.gpu()->current();
  CuvidCreateInfo info{};
  info.width = info.max_width = static_cast<unsigned long>(shape.coded_width);
  info.height = info.max_height = static_cast<unsigned long>(shape.coded_height);
  info.surfaces = static_cast<unsigned long>(shape.surfaces);
  info.codec = shape.codec;
  info.chroma = shape.chroma;
  info.flags = kCuvidDedicatedUnits;
  info.bit_depth_minus_8 = static_cast<unsigned long>(shape.bit_depth - 8);
  info.display = shown_area(shape);
  info.output_format = SurfaceFormat{shape.chroma, shape.bit_depth}.number();
  info.target_width = static_cast<unsigned long>(shape.width);
  info.target_height = static_cast<unsigned long>(shape.height);
  info.mapped_surfaces = kMostMapped;
  stream_.gpu()->driver().call(CuvidLibrary::get().create_decoder, &decoder_, &info);
}

HardwareDecoder::~HardwareDecoder() {
  if (!gpu()->driver().is_usable()) return;
  try {
    const auto now = gpu()->current();
    CuvidLibrary::get().destroy_decoder.pointer(decoder_);
  } catch (const CudaError&) {  // the driver has shut down
  }
}

bool HardwareDecoder::can_become(const DecoderShape& shape) const {
  return shape.codec == shape_.codec && shape.chroma == shape_.chroma && shape.bit_depth == shape_.bit_depth &&
         shape.coded_width <= max_width_ && shape.coded_height <= max_height_;
}

void HardwareDecoder::become(const DecoderShape& shape) {
  if (shape == shape_) return;
  CuvidReconfigureInfo info{};
  info.width = static_cast<unsigned>(shape.coded_width);
  info.height = static_cast<unsigned>(shape.coded_height);
  info.target_width = static_cast<unsigned>(shape.width);
  info.target_height = static_cast<unsigned>(shape.height);
  info.surfaces = static_cast<unsigned>(shape.surfaces);
  info.display = shown_area(shape);
  const auto now = gpu()->current();
  gpu()->driver().call(CuvidLibrary::get().reconfigure, decoder_, &info);
  shape_ = shape;
}

void HardwareDecoder::decode(CuvidPicture& picture) {
  const auto now = gpu()->current();
  gpu()->driver().call(CuvidLibrary::get().decode, decoder_, &picture);
}

std::unique_ptr<MappedPicture> HardwareDecoder::map(const CuvidShown& shown) {
  const auto now = gpu()->current();
  auto mapped = std::make_unique<MappedPicture>(stream_, decoder_, shown);
  stream_.fence();
  return mapped;
}

bool HardwareDecoder::failed(int surface) const {
  const auto now = gpu()->current();
  CuvidStatus status{};
  // Some codecs do not tell: that call fails.
  return CuvidLibrary::get().get_status.pointer(decoder_, surface, &status) == 0 && status.status >= kCuvidError;
}

}  // namespace flashcodec
