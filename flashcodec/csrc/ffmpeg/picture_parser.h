// One of FFmpeg's parsers, over packets that are whole pictures.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "ffmpeg/decoding.h"
#include "ffmpeg/packet.h"

namespace flashcodec {

class PictureParser {
 public:
  explicit PictureParser(const AVCodecParameters& parameters)
      : parser_(av_parser_init(parameters.codec_id)), codec_(owned<CodecPtr>(avcodec_alloc_context3(nullptr))) {
    if (avcodec_parameters_to_context(codec_.get(), &parameters) < 0) throw std::bad_alloc();
    if (parser_ != nullptr) parser_->flags |= PARSER_FLAG_COMPLETE_FRAMES;
  }

  // What it knows of the last packet; null if FFmpeg has no parser of this codec.
  AVCodecParserContext* get() const { return parser_.get(); }

  // Packets are padded as FFmpeg's are.
  void parse(std::span<const uint8_t> packet) {
    if (parser_ == nullptr) return;
    uint8_t* out = nullptr;
    int size = 0;
    av_parser_parse2(parser_.get(), codec_.get(), &out, &size, packet.data(), static_cast<int>(packet.size()),
                     AV_NOPTS_VALUE, AV_NOPTS_VALUE, -1);
  }

 private:
  std::unique_ptr<AVCodecParserContext, FreeBy<av_parser_close>> parser_;
  CodecPtr codec_;
};

}  // namespace flashcodec
