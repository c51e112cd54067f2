// FFmpeg's frames as plain pictures.
#pragma once

#include "pixels/picture.h"

struct AVFrame;

namespace flashcodec {

// Describe a frame, whose memory the picture shares.
Picture picture_of(const AVFrame& frame);

}  // namespace flashcodec
