#include "codecs/mpeg.h"

#include "codecs/start_codes.h"
#include "codecs/vop_layer.h"

namespace flashcodec {

namespace {

using Bytes = std::span<const uint8_t>;

// MPEG-1 and MPEG-2
constexpr int kPicture = 0x00, kLastSlice = 0xAF, kSequenceHeader = 0xB3, kUserData = 0xB2, kExtension = 0xB5;
constexpr int kCodingExtension = 8, kFrame = 3;
// MPEG-4
constexpr int kVop = 0xB6;

// temporal_reference, picture_coding_type
PictureType type_of_picture(Bytes part) {
  const int code = part.size() > 2 ? part[2] >> 3 & 7 : 0;
  return code == 1 ? PictureType::kIntra : code == 3 ? PictureType::kBidirectional : PictureType::kPredicted;
}

bool is_b_picture(Bytes part) { return type_of_picture(part) == PictureType::kBidirectional; }

// vop_coding_type
PictureType type_of_vop(Bytes part) {
  const int code = part.size() > 1 ? part[1] >> 6 : 1;
  return code == 0 ? PictureType::kIntra : code == 2 ? PictureType::kBidirectional : PictureType::kPredicted;
}

bool is_b_vop(Bytes part) { return type_of_vop(part) == PictureType::kBidirectional; }

template <class TypeOf>
PictureType type_of_first(Bytes packet, int code, TypeOf type_of) {
  PictureType type = PictureType::kNone;
  visit_start_codes(packet, [&](Bytes part) {
    if (part[0] == code) type = type_of(part);
    return part[0] != code;
  });
  return type;
}

}  // namespace

PictureType mpeg_picture_type(Bytes packet) { return type_of_first(packet, kPicture, type_of_picture); }

PictureType mpeg4_picture_type(Bytes packet) { return type_of_first(packet, kVop, type_of_vop); }

Bytes mpeg_size(Bytes packet) {
  constexpr size_t kSizeBytes = 3;
  Bytes size;
  visit_start_codes(packet, [&](Bytes part) {
    if (part[0] == kSequenceHeader && part.size() > kSizeBytes) size = part.subspan(1, kSizeBytes);
    return part[0] != kPicture;
  });
  return size;
}

Bytes mpeg4_layer(Bytes packet) {
  Bytes layer;
  visit_start_codes(packet, [&](Bytes part) {
    if (is_vop_layer(part)) layer = part;
    return part[0] != kVop;
  });
  return layer;
}

bool lone_b_picture(Bytes packet) {
  int pictures = 0;
  int fields = 0;
  bool others = false;
  visit_start_codes(packet, [&](Bytes part) {
    if (part[0] == kPicture) {
      ++pictures;
      others = others || !is_b_picture(part);
    } else if (part[0] == kExtension && part.size() > 3 && part[1] >> 4 == kCodingExtension) {
      fields += (part[3] & 3) != kFrame ? 1 : 0;
    } else {
      others = others || (part[0] > kLastSlice && part[0] != kUserData);
    }
    return !others;
  });
  return !others && ((pictures == 1 && fields == 0) || (pictures == 2 && fields == 2));
}

bool lone_b_vop(Bytes packet) {
  int vops = 0;
  bool others = false;
  visit_start_codes(packet, [&](Bytes part) {
    ++vops;
    others = part[0] != kVop || !is_b_vop(part);
    return !others;
  });
  return !others && vops == 1;
}

int coded_vops(Bytes packet) {
  constexpr size_t kLongestEmptyVop = 19;
  int vops = 0;
  visit_start_codes(packet, [&](Bytes part) {
    vops += part[0] == kVop ? 1 : 0;
    return true;
  });
  return vops == 1 && packet.size() <= kLongestEmptyVop ? 0 : vops;
}

std::optional<bool> mpeg4_interlaced(Bytes data) {
  const Bytes layer = mpeg4_layer(data);
  return layer.empty() ? std::nullopt : std::optional(read_vop_layer(layer).interlaced);
}

}  // namespace flashcodec
