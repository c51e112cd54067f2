// Picture types of MPEG-1, MPEG-2 and MPEG-4 part 2 packets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace flashcodec {

enum class PictureType : uint8_t { kNone, kIntra, kPredicted, kBidirectional };

// Of the first picture in an MPEG-1 or MPEG-2 packet (ISO/IEC 13818-2, 6.3.9).
PictureType mpeg_picture_type(std::span<const uint8_t> packet);

// Of the first VOP in an MPEG-4 packet (ISO/IEC 14496-2, 6.3.5).
PictureType mpeg4_picture_type(std::span<const uint8_t> packet);

// What the sequence header in an MPEG-1 or MPEG-2 packet says of the picture size, or the video object layer in an
// MPEG-4 packet of all; empty if there is none.
std::span<const uint8_t> mpeg_size(std::span<const uint8_t> packet);
std::span<const uint8_t> mpeg4_layer(std::span<const uint8_t> packet);

// Whether an MPEG-1 or MPEG-2 packet is a B picture, both of its fields if it is coded as such, and nothing else. No
// other picture is predicted from it (ISO/IEC 13818-2, 7.6); what it might leave behind are quantiser matrices
// (6.3.11).
bool lone_b_picture(std::span<const uint8_t> packet);

// Whether an MPEG-4 packet is one B-VOP and nothing else: a packed bitstream keeps it together with the VOP before.
bool lone_b_vop(std::span<const uint8_t> packet);

// How many coded VOPs are in an MPEG-4 packet. What follows a packed pair is a small one that is not coded.
int coded_vops(std::span<const uint8_t> packet);

// Whether the video object layer in MPEG-4's configuration or a packet is interlaced (ISO/IEC 14496-2, 6.2.3); none
// if there is no such header.
std::optional<bool> mpeg4_interlaced(std::span<const uint8_t> data);

}  // namespace flashcodec
