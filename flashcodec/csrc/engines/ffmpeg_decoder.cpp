#include "engines/ffmpeg_decoder.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "pixels/ffmpeg_picture.h"

namespace flashcodec {

namespace {

bool same_parameters(const AVCodecParameters& a, const AVCodecParameters& b) {
  const auto key = [](const AVCodecParameters& p) {
    return std::tuple(p.codec_id, p.codec_tag, p.format, p.width, p.height, p.profile, p.level, p.field_order,
                      p.color_range, p.color_primaries, p.color_trc, p.color_space, p.chroma_location, p.video_delay,
                      p.sample_aspect_ratio.num, p.sample_aspect_ratio.den, p.extradata_size);
  };
  return key(a) == key(b) && std::equal(a.extradata, a.extradata + a.extradata_size, b.extradata);
}

}  // namespace

FfmpegDecoder::FfmpegDecoder(const Bitstream& stream, int threads, AVBufferRef* gpu)
    : ordered_(stream.ordered()),
      private_(!stream.contiguous() || stream.table().states.size() > 1),
      max_pixels_(stream.limits().max_pixels),
      parameters_(owned<ParametersPtr>(avcodec_parameters_alloc())),
      frame_(owned<FramePtr>(av_frame_alloc())) {
  const AVCodec* codec = avcodec_find_decoder(stream.parameters().codec_id);
  context_ = owned<CodecPtr>(avcodec_alloc_context3(codec));
  if (avcodec_parameters_copy(parameters_.get(), &stream.parameters()) < 0 ||
      avcodec_parameters_to_context(context_.get(), parameters_.get()) < 0) {
    throw std::bad_alloc();
  }
  context_->thread_count = threads;
  // What frame threads have to say nobody captures: it would go to the user's stderr.
  if (threads > 1) context_->log_level_offset = AV_LOG_TRACE;
  // A decoder that starts in the middle holds back frames it takes for incomplete. The plan has seen to it that
  // the ones wanted are not.
  if (ordered_) context_->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
  context_->max_pixels = max_pixels_;
  context_->opaque = static_cast<MadeUpPictures*>(this);
  if (gpu != nullptr) {
    context_->hw_device_ctx = av_buffer_ref(gpu);
    if (context_->hw_device_ctx == nullptr) throw std::bad_alloc();
    context_->get_format = choose_gpu;
    context_->extra_hw_frames = 2;  // the picture that is being written, and one more
  }
  const LogCapture log;
  const int status = avcodec_open2(context_.get(), codec, nullptr);
  if (status < 0) stream.fail(log.explain("the decoder cannot be opened: " + error_text(status)));
}

// FFmpeg asks with the formats that it can decode to; without the GPU's once that has refused the stream.
AVPixelFormat FfmpegDecoder::choose_gpu(AVCodecContext* context, const AVPixelFormat* offered) {
  for (; *offered != AV_PIX_FMT_NONE; ++offered) {
    if (*offered == AV_PIX_FMT_CUDA) return *offered;
  }
  static_cast<FfmpegDecoder*>(static_cast<MadeUpPictures*>(context->opaque))->refused_ = true;
  return AV_PIX_FMT_NONE;
}

void FfmpegDecoder::check_refused() const {
  if (refused_) throw EngineError(std::string("NVDEC does not decode this ") + avcodec_get_name(context_->codec_id));
}

bool FfmpegDecoder::fits(const Bitstream& stream) const {
  return !private_ && stream.contiguous() && stream.table().states.size() == 1 && stream.ordered() == ordered_ &&
         stream.limits().max_pixels == max_pixels_ && same_parameters(stream.parameters(), *parameters_);
}

void FfmpegDecoder::flush() {
  avcodec_flush_buffers(context_.get());
  damaged_packets_ = 0;
  made_up_before_ = count();
}

void FfmpegDecoder::send(const PacketToDecode& packet) {
  packet.packet->pts = packet.known.frame >= 0 ? packet.known.frame : AV_NOPTS_VALUE;
  packet.packet->dts = AV_NOPTS_VALUE;
  context_->skip_loop_filter = packet.rough ? AVDISCARD_ALL : AVDISCARD_DEFAULT;
  count_damage(avcodec_send_packet(context_.get(), packet.packet));
  check_refused();
}

void FfmpegDecoder::drain() { count_damage(avcodec_send_packet(context_.get(), nullptr)); }

const DecodedPicture* FfmpegDecoder::receive() {
  const int status = avcodec_receive_frame(context_.get(), frame_.get());
  count_damage(status);
  check_refused();
  if (status < 0) return nullptr;
  decoded_ = {picture_of(*frame_), frame_->pts, frame_->decode_error_flags != 0};
  return &decoded_;
}

void FfmpegDecoder::count_damage(int status) {
  if (status < 0 && status != AVERROR(EAGAIN) && status != AVERROR_EOF) ++damaged_packets_;
}

}  // namespace flashcodec
