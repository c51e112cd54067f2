// FFmpeg's frames as plain pictures.
#pragma once

#include <optional>

#include "pixels/picture.h"
#include "pixels/points/surface.h"

struct AVFrame;

namespace flashcodec {

// Describe a frame, whose memory the picture shares; a GPU's if the frame is there.
Picture picture_of(const AVFrame& frame);

// Describe samples of one of FFmpeg's pixel formats.
PictureFormat format_of(int pixels, int matrix, bool full_range);

// The samples of a picture of 4:2:0, 4:2:2 or 4:4:4, in planes of their own or interleaved; nullopt for any other.
std::optional<Surface> surface_of(const Picture& picture);

// The format of the same samples, each component in a plane of its own; not plain_yuv if there is none.
PictureFormat planar_format(const PictureFormat& format);

}  // namespace flashcodec
