// One of FFmpeg's decoders, in software or on a GPU.
#pragma once

#include "engines/backend.h"
#include "ffmpeg/decoding.h"
#include "ffmpeg/log.h"
#include "ffmpeg/packet.h"

namespace flashcodec {

class FfmpegDecoder : public PictureDecoder, private MadeUpPictures {
 public:
  // `threads` > 1: frame threads. `gpu`: FFmpeg's CUDA device, whose engines decode; pictures stay in its memory.
  // Throws DecodeError if the decoder cannot be opened.
  FfmpegDecoder(const Bitstream& stream, int threads, AVBufferRef* gpu = nullptr);

  bool fits(const Bitstream& stream) const override;
  void flush() override;
  void send(const PacketToDecode& packet) override;
  void drain() override;
  const DecodedPicture* receive() override;
  int damaged_packets() const override { return damaged_packets_ + count() - made_up_before_; }

 private:
  static AVPixelFormat choose_gpu(AVCodecContext* context, const AVPixelFormat* offered);
  void count_damage(int status);
  void check_refused() const;

  bool ordered_;
  bool private_;  // parameters may have come in its packets, so it fits no other stream
  int64_t max_pixels_;
  ParametersPtr parameters_;
  CodecPtr context_;
  FramePtr frame_;
  DecodedPicture decoded_;
  int made_up_before_ = 0;  // the flush
  int damaged_packets_ = 0;
  bool refused_ = false;  // by the GPU
};

}  // namespace flashcodec
