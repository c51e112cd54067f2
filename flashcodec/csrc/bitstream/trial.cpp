#include "bitstream/trial.h"

#include <algorithm>
#include <new>

#include "bitstream/packet_reader.h"
#include "ffmpeg/decoding.h"
#include "ffmpeg/log.h"

namespace flashcodec {

namespace {

CodecPtr open_decoder(const PacketTable& table, const AVCodecParameters& parameters) {
  const AVCodec* codec = avcodec_find_decoder(parameters.codec_id);
  auto context = owned<CodecPtr>(avcodec_alloc_context3(codec));
  if (avcodec_parameters_to_context(context.get(), &parameters) < 0) throw std::bad_alloc();
  context->thread_count = 1;
  context->max_pixels = table.limits.max_pixels;
  context->skip_loop_filter = AVDISCARD_ALL;  // pictures are only counted
  if (avcodec_open2(context.get(), codec, nullptr) < 0) return nullptr;
  return context;
}

// Returns false for a packet that is not there: whoever wants its frame is told so.
bool read(PacketReader& reader, int32_t index, AVPacket* packet) {
  try {
    reader.read(index, packet);
  } catch (const DecodeError&) {
    return false;
  }
  return true;
}

}  // namespace

TrialResult try_packets(const PacketTable& table, const AVCodecParameters& parameters, int32_t first, int32_t last,
                        Deadline deadline) {
  const LogCapture log;
  TrialResult result;
  const CodecPtr context = open_decoder(table, parameters);
  if (context == nullptr) return {{}, false};
  PacketReader reader(table);
  const auto packet = owned<PacketPtr>(av_packet_alloc());
  const auto frame = owned<FramePtr>(av_frame_alloc());
  std::vector<bool> came(last - first);
  const auto receive = [&] {
    while (avcodec_receive_frame(context.get(), frame.get()) >= 0) {
      if (frame->pts >= last) continue;
      const bool known = frame->pts >= first;
      const int32_t guess = result.shown.empty() ? first : result.shown.back();
      const int32_t number = known ? static_cast<int32_t>(frame->pts) : guess;
      result.told = result.told && known && !came[number - first];
      came[number - first] = true;
      result.shown.push_back(number);
    }
  };
  int32_t state = -1;
  // Packets behind push frames out: a decoder that is drained ends at the first frame that it leaves out.
  const int32_t end = std::min(static_cast<int32_t>(table.packets.size()), last + kLongestDelay);
  for (int32_t i = first; i < end && (i < last || std::ranges::count(came, false) > 0); ++i) {
    if (deadline.passed()) table.fail(analysis_too_long(table.limits), ErrorKind::kLimit);
    if (!read(reader, i, packet.get())) continue;
    table.prepare(i, state, *packet);
    packet->pts = i;
    packet->dts = AV_NOPTS_VALUE;
    // What is over the limit of pixels is there all the same.
    const int status = avcodec_send_packet(context.get(), packet.get());
    if (i < last && status == AVERROR(EINVAL) && log.last_error().starts_with("Picture size")) return {{}, false};
    receive();
  }
  avcodec_send_packet(context.get(), nullptr);
  receive();
  return result;
}

}  // namespace flashcodec
