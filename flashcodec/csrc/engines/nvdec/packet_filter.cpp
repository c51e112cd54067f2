#include "engines/nvdec/packet_filter.h"

#include <new>
#include <string>

#include "engines/backend.h"

namespace flashcodec {

namespace {

const char* filter_of(AVCodecID codec) {
  return codec == AV_CODEC_ID_H264 ? "h264_mp4toannexb" : codec == AV_CODEC_ID_HEVC ? "hevc_mp4toannexb" : "null";
}

}  // namespace

PacketFilter::PacketFilter(const AVCodecParameters& parameters) : packet_(owned<PacketPtr>(av_packet_alloc())) {
  const char* name = filter_of(parameters.codec_id);
  const AVBitStreamFilter* filter = av_bsf_get_by_name(name);
  if (filter == nullptr) throw EngineError(std::string("this FFmpeg has no ") + name);
  AVBSFContext* context = nullptr;
  if (av_bsf_alloc(filter, &context) < 0) throw std::bad_alloc();
  context_.reset(context);
  if (avcodec_parameters_copy(context->par_in, &parameters) < 0) throw std::bad_alloc();
  if (av_bsf_init(context) < 0) throw EngineError("NVDEC cannot use the parameter sets of this stream");
}

std::span<const uint8_t> PacketFilter::header() const {
  const AVCodecParameters& parameters = *context_->par_out;
  const bool start_codes = parameters.codec_id == AV_CODEC_ID_H264 || parameters.codec_id == AV_CODEC_ID_HEVC;
  if (!start_codes || parameters.extradata == nullptr) return {};
  return {parameters.extradata, static_cast<size_t>(parameters.extradata_size)};
}

bool PacketFilter::filter(const AVPacket& packet, const std::function<void(std::span<const uint8_t>)>& take) {
  if (av_packet_ref(packet_.get(), &packet) < 0) throw std::bad_alloc();
  int status = av_bsf_send_packet(context_.get(), packet_.get());
  if (status < 0) av_packet_unref(packet_.get());
  while (status >= 0) {
    status = av_bsf_receive_packet(context_.get(), packet_.get());
    if (status < 0) break;
    take({packet_->data, static_cast<size_t>(packet_->size)});
    av_packet_unref(packet_.get());
  }
  return status == AVERROR(EAGAIN) || status == AVERROR_EOF;
}

void PacketFilter::flush() { av_bsf_flush(context_.get()); }

}  // namespace flashcodec
