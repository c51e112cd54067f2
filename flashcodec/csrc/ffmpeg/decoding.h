// FFmpeg's decoders and the frames that they give.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/frame.h>
}

#include <memory>

#include "ffmpeg/owned.h"

namespace flashcodec {

using FramePtr = std::unique_ptr<AVFrame, FreeByPointer<av_frame_free>>;
using CodecPtr = std::unique_ptr<AVCodecContext, FreeByPointer<avcodec_free_context>>;

}  // namespace flashcodec
