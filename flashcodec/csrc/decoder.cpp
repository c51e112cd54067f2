#include "decoder.h"

#include <algorithm>
#include <tuple>

namespace flashcodec {

namespace {

// Pictures that a decoder holds: references, those waiting for their turn, and the one at work.
constexpr int kPictures = 9;

bool same_parameters(const AVCodecParameters& a, const AVCodecParameters& b) {
  const auto key = [](const AVCodecParameters& p) {
    return std::tuple(p.codec_id, p.codec_tag, p.format, p.width, p.height, p.profile, p.level, p.field_order,
                      p.color_range, p.color_primaries, p.color_trc, p.color_space, p.chroma_location, p.video_delay,
                      p.sample_aspect_ratio.num, p.sample_aspect_ratio.den, p.extradata_size);
  };
  return key(a) == key(b) && std::equal(a.extradata, a.extradata + a.extradata_size, b.extradata);
}

}  // namespace

Decoder::Decoder(const Bitstream& stream, int threads)
    : threads_(threads),
      ordered_(stream.ordered()),
      private_(!stream.contiguous()),
      max_pixels_(stream.limits().max_pixels),
      parameters_(owned<ParametersPtr>(avcodec_parameters_alloc())) {
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
  const LogCapture log;
  const int status = avcodec_open2(context_.get(), codec, nullptr);
  if (status < 0) stream.fail(log.explain("the decoder cannot be opened: " + error_text(status)));
}

bool Decoder::fits(const Bitstream& stream) const {
  return !private_ && stream.contiguous() && stream.ordered() == ordered_ &&
         stream.limits().max_pixels == max_pixels_ && same_parameters(stream.parameters(), *parameters_);
}

int64_t Decoder::memory(const Bitstream& stream) {
  const AVCodecParameters& parameters = stream.parameters();
  const int bytes =
      av_image_get_buffer_size(static_cast<AVPixelFormat>(parameters.format), parameters.width, parameters.height, 1);
  const int64_t picture = bytes > 0 ? bytes : int64_t{3} * parameters.width * parameters.height;
  return picture * kPictures;
}

}  // namespace flashcodec
