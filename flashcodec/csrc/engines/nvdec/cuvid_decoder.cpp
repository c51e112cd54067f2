#include "engines/nvdec/cuvid_decoder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engines/nvdec/surface_format.h"
#include "pixels/ffmpeg_picture.h"

namespace flashcodec {

namespace {

// Pictures that the parser holds back, so that the unit has more to do while one is waited for.
constexpr int kDisplayDelay = 4;
// Before the first sequence header tells how many surfaces it takes.
constexpr unsigned kFirstSurfaces = 1;
constexpr int kUnspecified = 2;  // of the matrices of ITU-T H.273; 0 is RGB, which NVDEC does not decode

bool packets_are_pictures(AVCodecID codec) { return codec == AV_CODEC_ID_H264 || codec == AV_CODEC_ID_HEVC; }

}  // namespace

CuvidDecoder::CuvidDecoder(const Bitstream& stream, int codec, GpuPtr gpu, DecoderPool& pool)
    : codec_(codec),
      one_picture_(packets_are_pictures(stream.parameters().codec_id)),
      max_pixels_(stream.limits().max_pixels),
      gpu_(std::move(gpu)),
      pool_(pool),
      parameters_(owned<ParametersPtr>(avcodec_parameters_alloc())),
      filter_(stream.parameters()),
      references_(codec) {
  if (avcodec_parameters_copy(parameters_.get(), &stream.parameters()) < 0) throw std::bad_alloc();
  on_gpu([&] { make_parser(); });
}

CuvidDecoder::~CuvidDecoder() {
  current_.reset();
  due_.clear();
  destroy_parser();
  if (decoder_ != nullptr && !gave_up_) pool_.give_back(std::move(decoder_));
}

// Run what calls the driver; its errors are a reason to leave the rest to another kind of engine.
template <class Work>
void CuvidDecoder::on_gpu(Work work) {
  gave_up_ = true;
  try {
    const auto now = gpu_->current();
    work();
  } catch (const native::cuda::CudaError& error) {
    throw EngineError(std::string("NVDEC: ") + error.what());
  }
  gave_up_ = false;
}

bool CuvidDecoder::fits(const Bitstream&) const { return false; }

template <auto Method, class Argument>
int CuvidDecoder::call_back(void* self, Argument* argument) {
  auto& decoder = *static_cast<CuvidDecoder*>(self);
  if (argument == nullptr) return 1;  // the end of the stream
  try {
    return (decoder.*Method)(*argument);
  } catch (...) {
    decoder.error_ = std::current_exception();
    return 0;
  }
}

void CuvidDecoder::make_parser() {
  CuvidParserInfo info{};
  info.codec = codec_;
  info.surfaces = kFirstSurfaces;
  info.display_delay = kDisplayDelay;
  info.user = this;
  info.on_sequence = call_back<&CuvidDecoder::on_sequence, CuvidFormat>;
  info.on_decode = call_back<&CuvidDecoder::on_decode, CuvidPicture>;
  info.on_display = call_back<&CuvidDecoder::on_display, CuvidShown>;
  gpu_->driver().call(CuvidLibrary::get().create_parser, &parser_, &info);
}

void CuvidDecoder::destroy_parser() {
  if (parser_ != nullptr) CuvidLibrary::get().destroy_parser.pointer(parser_);
  parser_ = nullptr;
}

// A parser that has ended a stream waits for a new one: it is cheap to make, the decoder is kept.
void CuvidDecoder::flush() {
  current_.reset();
  due_.clear();
  newest_ = -1;
  frames_.clear();
  orders_.clear();
  wanted_.clear();
  unchecked_.clear();
  filter_.flush();
  references_.flush();
  if (!begun_) return;
  begun_ = false;
  on_gpu([&] {
    destroy_parser();
    make_parser();
  });
}

void CuvidDecoder::parse(std::span<const uint8_t> data, unsigned long flags) {
  CuvidPacket packet{flags, static_cast<unsigned long>(data.size()), data.data(), order_};
  const native::cuda::Result result = CuvidLibrary::get().parse.pointer(parser_, &packet);
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  gpu_->driver().check("cuvidParseVideoData", result);
}

// The parser waits for the packet after that to know that a picture ends, unless it is told. A picture that is not
// shown has no timestamp that one shown could be given.
unsigned long CuvidDecoder::flags_of(const PacketToDecode& packet) const {
  return (packet.known.shown ? kCuvidTimestamp : 0) | (one_picture_ ? kCuvidEndOfPicture : 0);
}

bool CuvidDecoder::take_parameter_sets(AVPacket& packet) {
  size_t size = 0;
  const uint8_t* sets = av_packet_get_side_data(&packet, AV_PKT_DATA_NEW_EXTRADATA, &size);
  if (sets == nullptr) return false;
  filter_ = PacketFilter(*with_configuration(*parameters_, {sets, size}));
  av_packet_free_side_data(&packet);
  return true;
}

void CuvidDecoder::send(const PacketToDecode& packet) {
  if (packet.known.torn && packet.known.shown) {
    throw EngineError("NVDEC does not conceal as cores do what is missing of this stream");
  }
  bool sound = true;
  on_gpu([&] {
    const bool changed = take_parameter_sets(*packet.packet);
    if ((!begun_ || changed) && !filter_.header().empty()) parse(filter_.header(), 0);
    begins_ = packet.known.key || packet.known.torn || packet.after_leading || !begun_;
    begun_ = true;
    order_ = packet.known.order;
    pictures_ = 0;
    frames_[order_] = packet.known.frame;
    if (packet.wanted) wanted_.insert(packet.known.frame);
    sound = filter_.filter(*packet.packet, [&](std::span<const uint8_t> data) { parse(data, flags_of(packet)); });
  });
  const bool absent = one_picture_ && pictures_ == 0 && !packet.known.torn;
  if (!sound || absent) throw EngineError("NVDEC finds no picture in packets of this stream");
}

void CuvidDecoder::drain() {
  begun_ = true;
  on_gpu([&] { parse({}, kCuvidEndOfStream); });
  if (!wanted_.empty()) throw EngineError("NVDEC left out frame " + std::to_string(*wanted_.begin()));
}

int CuvidDecoder::on_sequence(CuvidFormat& format) {
  const DecoderShape shape = shape_of(format);
  const PictureFormat pictures = format_of_pictures(format);
  const bool same = decoder_ != nullptr && decoder_->shape() == shape;
  if (!unchecked_.empty() && !(same && pictures == format_)) {
    throw EngineError("the pictures of this stream change where no decoder begins anew");
  }
  if (!same && decoder_ != nullptr) pool_.give_back(std::move(decoder_));
  if (!same) decoder_ = pool_.take(shape);
  format_ = pictures;
  return shape.surfaces;
}

DecoderShape CuvidDecoder::shape_of(const CuvidFormat& format) const {
  const DecoderShape shape{.codec = format.codec,
                           .chroma = format.chroma,
                           .bit_depth = format.luma_bits_minus_8 + 8,
                           .surfaces = format.least_surfaces + kDisplayDelay,
                           .coded_width = static_cast<int>(format.coded_width),
                           .coded_height = static_cast<int>(format.coded_height),
                           .left = format.display.left,
                           .top = format.display.top,
                           .width = format.display.right - format.display.left,
                           .height = format.display.bottom - format.display.top};
  const bool even = shape.width > 0 && shape.height > 0 && shape.width % 2 == 0 && shape.height % 2 == 0;
  const bool large = int64_t{shape.width} * shape.height > max_pixels_;
  if (format.luma_bits_minus_8 != format.chroma_bits_minus_8 || !even || large) {
    throw EngineError("NVDEC does not decode the pictures of this stream");
  }
  return shape;
}

// What the stream itself says goes before what its container does.
PictureFormat CuvidDecoder::format_of_pictures(const CuvidFormat& format) const {
  const int pixels = SurfaceFormat{format.chroma, format.luma_bits_minus_8 + 8}.pixels();
  const bool told = format.matrix != 0 && format.matrix != kUnspecified;
  const bool full_range = (format.signal & kCuvidFullRange) != 0 || parameters_->color_range == AVCOL_RANGE_JPEG;
  const int matrix = told ? format.matrix : static_cast<int>(parameters_->color_space);
  return format_of(pixels, matrix, full_range);
}

int CuvidDecoder::on_decode(CuvidPicture& picture) {
  if (picture.is_field != 0) throw EngineError("NVDEC gives no whole frames of interlaced pictures here");
  for (Due& due : due_) {
    if (due.shown.surface == picture.surface && due.mapped == nullptr) due.mapped = decoder_->map(due.shown);
  }
  if (unchecked_.contains(picture.surface)) check(picture.surface);
  if (++pictures_ > 1 && one_picture_) throw EngineError("NVDEC finds several pictures in a packet of this stream");
  if (!references_.complete(picture, begins_)) throw EngineError("NVDEC does not conceal lost pictures as cores do");
  decoder_->decode(picture);
  unchecked_.insert(picture.surface);
  orders_[picture.surface] = order_;
  return 1;
}

int CuvidDecoder::on_display(CuvidShown& shown) {
  const int64_t frame = frames_.at(order_of(shown));
  if (wanted_.erase(frame) > 0) due_.push_back({shown, frame, nullptr});
  return 1;
}

int64_t CuvidDecoder::order_of(const CuvidShown& shown) {
  const auto decoded = orders_.find(shown.surface);
  if (decoded == orders_.end()) throw EngineError("NVDEC shows a picture that it has not decoded");
  if (one_picture_) return decoded->second;
  const int64_t order = shown.timestamp;
  if (order < decoded->second || order <= newest_ || !frames_.contains(order)) {
    throw EngineError("NVDEC exchanges timestamps of this stream");
  }
  return newest_ = order;
}

void CuvidDecoder::check(int surface) const {
  if (decoder_->failed(surface)) throw EngineError("NVDEC finds damage in this stream");
}

const DecodedPicture* CuvidDecoder::receive() {
  current_.reset();
  if (due_.empty()) return nullptr;
  Due due = std::move(due_.front());
  due_.pop_front();
  on_gpu([&] {
    current_ = due.mapped != nullptr ? std::move(due.mapped) : decoder_->map(due.shown);
    // Units decode in order: what was sent before is done, too. What was sent after may not be, and is looked at again.
    for (const int surface : unchecked_) check(surface);
  });
  const DecoderShape& shape = decoder_->shape();
  const SurfaceFormat surface{shape.chroma, shape.bit_depth};
  decoded_ = {.picture = surface.picture(format_, current_->data(), current_->pitch(), shape.width, shape.height),
              .frame = due.frame};
  return &decoded_;
}

}  // namespace flashcodec
