// What the frame headers of VP8 and VP9 packets tell without decoding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "codecs/start.h"

namespace flashcodec {

// Beside reference pictures these codecs hand on state from each frame to the next, also from one that refreshes
// nothing: VP9 motion vectors, segment maps, loop filter deltas and how fast probabilities adapt (VP9 6.1.2, 7.2),
// VP8 segment maps and loop filter deltas (RFC 6386, 9.3 and 9.6). So a frame can be left out only in a stream of which
// all frames renounce that, as error resilient encoders with temporal layers make them.
struct VpxFrame {
  // VP9: a key frame, or error_resilient_mode, which resets all but the reference pictures (setup_past_independence,
  // no previous motion vectors). VP8: segment map and loop filter deltas are off or its own.
  bool independent = false;
  // It leaves reference pictures as they are; VP8: and probabilities and segment features, which stay until a later
  // frame changes them.
  bool refreshes_nothing = false;
};

VpxFrame inspect_vp8(std::span<const uint8_t> packet);
VpxFrame inspect_vp9(std::span<const uint8_t> packet);

// Whether the packet begins with a key frame, from which on nothing is taken from the frames before.
Start vp8_start(std::span<const uint8_t> packet);
Start vp9_start(std::span<const uint8_t> packet);

// Whether a frame of the packet is shown; frames that are not (alternate references) are only referred to. True also
// for what cannot be read.
bool vp8_shows(std::span<const uint8_t> packet);
bool vp9_shows(std::span<const uint8_t> packet);

// What a VP9 key frame says of the pictures. `color_space` is the number in 7.2.2 of the specification.
struct Vp9Format {
  int profile = 0;
  int bit_depth = 8;
  int color_space = 0;
  bool full_range = false;
  int width = 0;
  int height = 0;
};

// Of a packet that begins with a key frame of 4:2:0 pictures (profiles 0 and 2); nullopt for any other.
std::optional<Vp9Format> vp9_format(std::span<const uint8_t> packet);

}  // namespace flashcodec
