// What a container says of a video stream as a whole.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>

extern "C" {
#include <libavformat/avformat.h>
}

#include "pixels/orientation.h"

namespace flashcodec {

struct Metadata {
  std::string codec;
  std::optional<std::string> pixel_format;
  int width = 0;  // as displayed, after rotation
  int height = 0;
  std::optional<double> rotation;
  std::optional<double> duration_from_header;
  std::optional<double> begin_from_header;
  std::optional<double> bit_rate;
  std::optional<double> average_fps_from_header;
  std::optional<int64_t> num_frames_from_header;
  std::optional<std::pair<int, int>> pixel_aspect_ratio;
  std::optional<std::string> color_primaries, color_space, color_transfer;
};

Metadata metadata_of(const AVStream& stream);

Orientation orientation_of(const AVStream& stream);

bool is_encrypted(const AVStream& stream);

}  // namespace flashcodec
