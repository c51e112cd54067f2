// A stand-in for libnvcuvid with two NVDEC units of an H100's kind, over FFmpeg's decoders in software. It calls back
// in the order that makes a user's life hardest: pictures are shown before the next one is decoded to their surface.
// The parser exchanges timestamps (nvcuvid_times.h). What is mapped is there when its stream has been waited for.
//
// $FAKE_CUVID_FAULT names a call that fails ("create", "map", "decode"), or what the stream does to it ("damage": a
// picture is found damaged; "gap": pictures that others refer to are lost; "fields": pictures come in fields;
// "silence": packets have no pictures; "twice": packets have two; "stamps": the parser takes timestamps that it was not
// told to take); a number behind it, "decode 7", says after how many calls.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/pixdesc.h>
}

#include "engines/nvdec/cuvid_abi.h"
#include "nvcuvid_numbers.h"
#include "nvcuvid_times.h"

namespace {

using namespace flashcodec;

enum Result { kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kInvalidContext = 201, kUnknown = 999 };

constexpr int kH264 = kCuvidH264;
constexpr int kHevc = kCuvidHevc;
constexpr int kVp8 = 9;
constexpr int k420 = 1;
constexpr int kSurfaces = 16;  // that the parser takes for any stream
constexpr int kErrorStatus = 8;

struct FreeFrame {
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
};
struct FreeContext {
  void operator()(AVCodecContext* context) const { avcodec_free_context(&context); }
};
using Frames = std::map<long long, std::unique_ptr<AVFrame, FreeFrame>>;  // by the packet that they come from

// What the parser tells the decoder of a picture, behind what any user may know.
struct Picture {
  CuvidPicture head;
  long long packet;
  const Frames* frames;
};

struct Parser {
  CuvidParserInfo info;
  Times times;
  ToldNumbers numbers{};
  CuvidH264 told{};  // of the packet at hand
  std::unique_ptr<AVCodecContext, FreeContext> software{};
  std::vector<uint8_t> header{};
  long long packet = -1;                  // at hand
  std::set<int> busy{};                   // surfaces of pictures that are to be shown or referred to
  std::map<long long, int> surface_of{};  // by packet
  std::deque<long long> to_show{};
  int hidden = -1;  // surface of the last picture that is only referred to
  Frames frames{};
};

// Memory that pictures are copied to, which others are copied to later.
struct Output {
  std::vector<uint8_t> bytes{};
  bool mapped = false;
};

struct Decoder {
  CuvidCreateInfo info;
  std::map<int, Picture> surfaces;
  std::set<int> damaged;
  std::vector<Output> outputs;
};

std::mutex lock;
std::map<std::string, int, std::less<>> counts;
std::atomic<int> live = 0;

template <class Function>
Function* of_driver(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

bool is_current() {
  static const auto get = of_driver<int(void**)>("cuCtxGetCurrent");
  void* context = nullptr;
  return get(&context) == kSuccess && context != nullptr;
}

// Copy bytes when the stream comes to it.
int copy_later(std::vector<uint8_t> from, uint8_t* to, void* stream) {
  struct Copy {
    std::vector<uint8_t> from;
    uint8_t* to;
  };
  static const auto launch = of_driver<int(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
  const auto run = [](void* data) {
    const std::unique_ptr<Copy> copy(static_cast<Copy*>(data));
    std::ranges::copy(copy->from, copy->to);
  };
  return launch(stream, run, new Copy{std::move(from), to});
}

// Count a call; true if it is to fail.
bool fails(std::string_view call) {
  const std::lock_guard held(lock);
  const int count = ++counts[std::string(call)];
  const char* given = std::getenv("FAKE_CUVID_FAULT");
  const std::string_view fault = given == nullptr ? "" : given;
  if (!fault.starts_with(call)) return false;
  return fault.size() == call.size() || count > std::atoi(fault.data() + call.size());
}

int show(Parser& parser, size_t held_back) {
  while (parser.to_show.size() > held_back) {
    const int surface = parser.surface_of.at(parser.to_show.front());
    parser.to_show.pop_front();
    parser.busy.erase(surface);
    CuvidShown shown{surface, 1, 0, 0, parser.times.shown(surface)};
    if (parser.info.on_display(parser.info.user, &shown) == 0) return kUnknown;
  }
  return kSuccess;
}

void collect(Parser& parser) {
  for (;;) {
    std::unique_ptr<AVFrame, FreeFrame> frame(av_frame_alloc());
    if (avcodec_receive_frame(parser.software.get(), frame.get()) < 0) return;
    const long long packet = frame->pts;
    if (!parser.surface_of.contains(packet)) continue;
    parser.to_show.push_back(packet);
    parser.frames[packet] = std::move(frame);
  }
}

// A picture of VP8 that does not come out at once never does; it is referred to until there is another one.
void note_hidden(Parser& parser) {
  if (parser.info.codec != kVp8 || parser.frames.contains(parser.packet)) return;
  parser.busy.erase(parser.hidden);
  parser.hidden = parser.surface_of.at(parser.packet);
}

int tell_of_sequence(Parser& parser) {
  const AVCodecContext& context = *parser.software;
  const int bits = av_pix_fmt_desc_get(context.pix_fmt)->comp[0].depth - 8;
  CuvidFormat format{};
  format.codec = parser.info.codec;
  format.luma_bits_minus_8 = format.chroma_bits_minus_8 = static_cast<uint8_t>(bits);
  format.least_surfaces = kSurfaces;
  format.coded_width = static_cast<unsigned>(context.coded_width);
  format.coded_height = static_cast<unsigned>(context.coded_height);
  format.display = {0, 0, context.width, context.height};
  format.chroma = k420;
  format.signal = context.color_range == AVCOL_RANGE_JPEG ? kCuvidFullRange : 0;
  format.matrix = static_cast<uint8_t>(context.colorspace);
  return parser.info.on_sequence(parser.info.user, &format);
}

// Say of a picture what the parser does where one that it refers to was lost.
void leave_out(const Parser& parser, CuvidPicture& picture) {
  if (parser.info.codec == kHevc) {
    picture.hevc.references = picture.hevc.before = 1;
    picture.hevc.surfaces[0] = -1;
  } else {
    picture.h264.frame_num += 2;
  }
}

int decode(Parser& parser, std::optional<long long> timestamp) {
  int surface = 0;
  while (parser.busy.contains(surface)) ++surface;
  if (surface >= kSurfaces) return kUnknown;
  parser.busy.insert(surface);
  parser.surface_of[parser.packet] = surface;
  parser.times.decoded(surface, timestamp);
  const int fields = fails("fields") ? 1 : 0;
  Picture picture{{}, parser.packet, &parser.frames};
  picture.head.surface = surface;
  picture.head.is_field = fields;
  if (parser.info.codec == kH264) picture.head.h264 = parser.told;
  if (fails("gap")) leave_out(parser, picture.head);
  return parser.info.on_decode(parser.info.user, &picture.head) == 0 ? kUnknown : kSuccess;
}

// Samples of planar 4:2:0 as NV12 or P010.
std::vector<uint8_t> interleave(const AVFrame& frame, int pitch, int width, int height) {
  const int bytes = frame.format == AV_PIX_FMT_YUV420P || frame.format == AV_PIX_FMT_YUVJ420P ? 1 : 2;
  std::vector<uint8_t> out(static_cast<size_t>(pitch) * height * 3 / 2);
  const auto put = [&](int plane, int y, int x, int row, int column) {
    const uint8_t* from = frame.data[plane] + static_cast<ptrdiff_t>(y) * frame.linesize[plane] + x * bytes;
    uint8_t* to = out.data() + static_cast<ptrdiff_t>(row) * pitch + column * bytes;
    if (bytes == 1) {
      *to = *from;
    } else {
      const int shift = 16 - av_pix_fmt_desc_get(static_cast<AVPixelFormat>(frame.format))->comp[0].depth;
      uint16_t sample = 0;
      std::memcpy(&sample, from, 2);
      sample = static_cast<uint16_t>(sample << shift);
      std::memcpy(to, &sample, 2);
    }
  };
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) put(0, y, x, y, x);
  }
  for (int y = 0; y < height / 2; ++y) {
    for (int x = 0; x < width / 2; ++x) {
      put(1, y, x, height + y, 2 * x);
      put(2, y, x, height + y, 2 * x + 1);
    }
  }
  return out;
}

}  // namespace

extern "C" {

// What is not destroyed or unmapped, and how often a call was made.
int fake_cuvid_live() { return live; }
int fake_cuvid_count(const char* call) { return counts[call]; }

int cuvidGetDecoderCaps(CuvidCaps* caps) {
  const bool known = caps->codec == kH264 || caps->codec == kHevc || caps->codec == kVp8;
  caps->supported = known && caps->chroma == k420 && caps->bit_depth_minus_8 <= (caps->codec == kHevc ? 4U : 0U);
  if (caps->supported == 0) return kSuccess;
  caps->engines = 2;
  caps->output_formats = 3;
  caps->max_width = caps->max_height = 4096;
  caps->max_macroblocks = 65536;
  caps->min_width = caps->min_height = 48;
  return kSuccess;
}

int cuvidCreateVideoParser(void** parser, CuvidParserInfo* info) {
  fails("parser");
  const AVCodec* codec = avcodec_find_decoder(info->codec == kH264   ? AV_CODEC_ID_H264
                                              : info->codec == kHevc ? AV_CODEC_ID_HEVC
                                                                     : AV_CODEC_ID_VP8);
  auto made = std::make_unique<Parser>(Parser{.info = *info, .times = Times(info->clock_rate)});
  made->software.reset(avcodec_alloc_context3(codec));
  made->software->thread_count = 1;
  made->software->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
  if (avcodec_open2(made->software.get(), codec, nullptr) < 0) return kUnknown;
  ++live;
  *parser = made.release();
  return kSuccess;
}

int cuvidDestroyVideoParser(void* parser) {
  delete static_cast<Parser*>(parser);
  --live;
  return kSuccess;
}

int cuvidParseVideoData(void* handle, CuvidPacket* packet) {
  Parser& parser = *static_cast<Parser*>(handle);
  if ((packet->flags & kCuvidEndOfStream) != 0) {
    avcodec_send_packet(parser.software.get(), nullptr);
    collect(parser);
    const int status = show(parser, 0);
    if (status == kSuccess) parser.info.on_display(parser.info.user, nullptr);
    return status;
  }
  if (parser.packet < 0 && packet->flags == 0) {
    parser.header.assign(packet->data, packet->data + packet->bytes);
    return kSuccess;
  }
  ++parser.packet;
  if (fails("silence")) return kSuccess;
  std::vector<uint8_t> bytes = std::move(parser.header);
  parser.header.clear();
  bytes.insert(bytes.end(), packet->data, packet->data + packet->bytes);
  if (parser.info.codec == kH264) parser.numbers.tell(bytes, parser.told);
  const size_t size = bytes.size();
  bytes.resize(size + AV_INPUT_BUFFER_PADDING_SIZE);
  AVPacket* coded = av_packet_alloc();
  coded->data = bytes.data();
  coded->size = static_cast<int>(size);
  coded->pts = parser.packet;
  avcodec_send_packet(parser.software.get(), coded);
  av_packet_free(&coded);
  if (parser.packet == 0 && tell_of_sequence(parser) == 0) return kUnknown;
  if (show(parser, parser.info.display_delay) != kSuccess) return kUnknown;
  const bool stamped = (packet->flags & kCuvidTimestamp) != 0 || fails("stamps");
  const auto timestamp = stamped ? std::optional(packet->timestamp) : std::nullopt;
  if (decode(parser, timestamp) != kSuccess || (fails("twice") && decode(parser, timestamp) != kSuccess)) {
    return kUnknown;
  }
  collect(parser);
  note_hidden(parser);
  return kSuccess;
}

int cuvidCreateDecoder(void** decoder, CuvidCreateInfo* info) {
  if (!is_current()) return kInvalidContext;
  if (fails("create")) return kOutOfMemory;
  if (info->surfaces < kSurfaces || info->target_width % 2 != 0 || info->mapped_surfaces == 0) return kInvalidValue;
  ++live;
  *decoder =
      new Decoder{.info = *info, .surfaces = {}, .damaged = {}, .outputs = std::vector<Output>(info->mapped_surfaces)};
  return kSuccess;
}

int cuvidReconfigureDecoder(void* handle, CuvidReconfigureInfo* info) {
  Decoder& decoder = *static_cast<Decoder*>(handle);
  fails("reconfigure");
  if (!is_current()) return kInvalidContext;
  const bool mapped = std::ranges::any_of(decoder.outputs, &Output::mapped);
  if (info->width > decoder.info.max_width || info->height > decoder.info.max_height || mapped) return kInvalidValue;
  decoder.info.target_width = info->target_width;
  decoder.info.target_height = info->target_height;
  decoder.surfaces.clear();
  return kSuccess;
}

int cuvidDestroyDecoder(void* decoder) {
  if (!is_current()) return kInvalidContext;
  delete static_cast<Decoder*>(decoder);
  --live;
  return kSuccess;
}

int cuvidDecodePicture(void* handle, CuvidPicture* picture) {
  if (!is_current()) return kInvalidContext;
  if (fails("decode")) return kUnknown;
  Decoder& decoder = *static_cast<Decoder*>(handle);
  decoder.surfaces[picture->surface] = *reinterpret_cast<Picture*>(picture);
  decoder.damaged.erase(picture->surface);
  if (fails("damage")) decoder.damaged.insert(picture->surface);
  return kSuccess;
}

int cuvidGetDecodeStatus(void* handle, int surface, CuvidStatus* status) {
  if (!is_current()) return kInvalidContext;
  const Decoder& decoder = *static_cast<Decoder*>(handle);
  status->status = decoder.damaged.contains(surface) ? kErrorStatus : 2;
  return kSuccess;
}

int cuvidMapVideoFrame64(void* handle, int surface, unsigned long long* address, unsigned* pitch,
                         CuvidMapping* mapping) {
  if (!is_current()) return kInvalidContext;
  if (fails("map")) return kOutOfMemory;
  Decoder& decoder = *static_cast<Decoder*>(handle);
  const auto output = std::ranges::find(decoder.outputs, false, &Output::mapped);
  if (output == decoder.outputs.end() || mapping->unpaired_field != 0) return kInvalidValue;
  const Picture& picture = decoder.surfaces.at(surface);
  const auto frame = picture.frames->find(picture.packet);
  if (frame == picture.frames->end()) return kInvalidValue;  // not decoded: the surface was given to another picture
  const auto width = static_cast<int>(decoder.info.target_width);
  *pitch = static_cast<unsigned>(width * 2 + 255) / 256 * 256;
  std::vector<uint8_t> bytes =
      interleave(*frame->second, static_cast<int>(*pitch), width, static_cast<int>(decoder.info.target_height));
  output->bytes.assign(bytes.size(), 0x5A);
  output->mapped = true;
  *address = reinterpret_cast<unsigned long long>(output->bytes.data());
  ++live;
  return copy_later(std::move(bytes), output->bytes.data(), mapping->stream);
}

int cuvidUnmapVideoFrame64(void* handle, unsigned long long address) {
  if (!is_current()) return kInvalidContext;
  Decoder& decoder = *static_cast<Decoder*>(handle);
  const auto found = std::ranges::find_if(decoder.outputs, [&](const Output& output) {
    return output.mapped && reinterpret_cast<unsigned long long>(output.bytes.data()) == address;
  });
  if (found == decoder.outputs.end()) return kInvalidValue;
  std::ranges::fill(found->bytes, 0xAA);  // whoever still reads it will notice
  found->mapped = false;
  --live;
  return kSuccess;
}

}  // extern "C"
