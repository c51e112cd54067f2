// What the headers of AV1 packets (temporal units) tell without decoding.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "codecs/start.h"

namespace flashcodec {

// The fields of a sequence header that frame headers cannot be read without. Names are the AV1 specification's (5.5).
struct Av1Sequence {
  static constexpr int kSelect = 2;  // SELECT_SCREEN_CONTENT_TOOLS, SELECT_INTEGER_MV

  struct OperatingPoint {
    unsigned idc = 0;
    bool decoder_model_present = false;
  };

  bool reduced_still_picture_header = false;
  bool decoder_model_info_present = false;
  bool equal_picture_interval = false;
  int buffer_removal_time_length = 0;
  int frame_presentation_time_length = 0;
  int operating_points = 1;
  std::array<OperatingPoint, 32> operating_point{};
  int frame_id_length = 0;  // 0: frames have no ids
  int seq_force_screen_content_tools = kSelect;
  int seq_force_integer_mv = kSelect;
  int order_hint_bits = 0;
};

// The sequence header among the OBUs of av1C (the OBUs begin after four bytes) or of a packet, if there is one.
std::optional<Av1Sequence> find_av1_sequence(std::span<const uint8_t> obus);

// Whether no frame of the packet refreshes a reference slot. What a later frame takes from earlier ones (pictures,
// probabilities, motion vectors, segmentation, loop filter deltas, film grain) it takes from such slots (7.20, 7.21),
// so that the packet can be left out. A sequence header in the packet replaces `sequence`.
bool disposable_av1(std::span<const uint8_t> packet, std::optional<Av1Sequence>& sequence);

// How many frames of the packet are shown, or shown again, but for further spatial layers: one that is not is only
// referred to, and has a packet of its own where temporal units were taken apart; there are several where units were
// joined. 1 also for what cannot be read. A sequence header in the packet replaces `sequence`.
int av1_pictures_shown(std::span<const uint8_t> packet, std::optional<Av1Sequence>& sequence);

// Whether the first frame of the packet is a key frame that is shown, which resets all (7.20, 7.21). A sequence header
// in the packet replaces `sequence`.
Start av1_start(std::span<const uint8_t> packet, std::optional<Av1Sequence>& sequence);

}  // namespace flashcodec
