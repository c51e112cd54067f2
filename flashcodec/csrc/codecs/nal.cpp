#include "codecs/nal.h"

#include <algorithm>
#include <array>
#include <vector>

#include "codecs/bit_reader.h"
#include "codecs/start_codes.h"

namespace flashcodec {

namespace {

using Bytes = std::span<const uint8_t>;

// recovery_frame_cnt of a recovery point SEI (H.264 D.1.8), if the NAL unit holds one.
std::optional<unsigned> recovery_frames(Bytes sei) {
  constexpr unsigned kRecoveryPoint = 6;
  const std::vector<uint8_t> data = unescape(sei.subspan(1), 4096);
  size_t at = 0;
  while (at + 2 < data.size()) {
    std::array<unsigned, 2> type_and_size{};
    for (unsigned& value : type_and_size) {
      while (at < data.size() && data[at] == 0xFF) {
        value += 255;
        ++at;
      }
      if (at < data.size()) value += data[at++];
    }
    if (type_and_size[0] == kRecoveryPoint) return BitReader(Bytes(data).subspan(at)).exp_golomb();
    at += type_and_size[1];
  }
  return std::nullopt;
}

bool intra_slice(Bytes slice) {
  const std::vector<uint8_t> header = unescape(slice.subspan(1), 16);
  BitReader bits(header);
  bits.exp_golomb();  // first_mb_in_slice
  const unsigned type = bits.exp_golomb() % 5;
  return type == 2 || type == 4;  // I, SI
}

// Of a slice that is no IDR picture's.
Start start_of_slice(Bytes slice, std::optional<unsigned> recovery) {
  if (recovery.value_or(0) > 0) return Start::kGradual;
  if (slice.size() < 2 || !intra_slice(slice)) return Start::kNo;
  return recovery ? Start::kYes : Start::kIntra;
}

int hevc_type(Bytes nal) { return nal[0] >> 1 & 0x3F; }
int hevc_layer(Bytes nal) { return (nal[0] & 1) << 5 | nal[1] >> 3; }
int hevc_temporal_id(Bytes nal) { return (nal[1] & 7) - 1; }

constexpr int kHevcFirstBla = 16, kHevcLastBla = 18, kHevcLastIdr = 20, kHevcLastIrap = 23;
constexpr int kHevcVps = 32, kHevcSps = 33, kHevcPps = 34, kHevcEndOfSequence = 36, kHevcEndOfBitstream = 37;

// sps_max_sub_layers_minus1 (HEVC 7.3.2.2.1)
int highest_temporal_id(Bytes nal, int known) {
  if (nal.size() < 3 || hevc_type(nal) != kHevcSps || hevc_layer(nal) != 0) return known;
  return std::max(known, nal[2] >> 1 & 7);
}

// The NAL units in an HEVCDecoderConfigurationRecord (ISO/IEC 14496-15, 8.3.3.1).
int highest_temporal_id_of_hvcc(Bytes record) {
  int highest = -1;
  size_t at = 23;
  for (int arrays = record[22]; arrays > 0 && at + 3 <= record.size(); --arrays) {
    int count = record[at + 1] << 8 | record[at + 2];
    at += 3;
    for (; count > 0 && at + 2 <= record.size(); --count) {
      const size_t length = static_cast<size_t>(record[at]) << 8 | record[at + 1];
      at += 2;
      if (at + length > record.size()) return highest;
      highest = highest_temporal_id(record.subspan(at, length), highest);
      at += length;
    }
  }
  return highest;
}

// What holds for pictures after this one.
bool outlasts_hevc(int type) {
  return (type >= kHevcVps && type <= kHevcPps) || type == kHevcEndOfSequence || type == kHevcEndOfBitstream;
}

}  // namespace

std::vector<uint8_t> unescape(Bytes nal, size_t limit) {
  std::vector<uint8_t> out;
  int zeros = 0;
  for (const uint8_t byte : nal) {
    if (out.size() >= limit) break;
    if (zeros >= 2 && byte == 3) {
      zeros = 0;
      continue;
    }
    zeros = byte == 0 ? zeros + 1 : 0;
    out.push_back(byte);
  }
  return out;
}

NalFormat NalFormat::of_h264(Bytes configuration) {
  if (configuration.size() <= 4 || configuration[0] != 1) return {};
  return {.length_bytes = (configuration[4] & 3) + 1};
}

NalFormat NalFormat::of_hevc(Bytes configuration) {
  const Bytes c = configuration;
  const bool annex_b = c.size() < 23 || (c[0] == 0 && c[1] == 0 && c[2] <= 1);
  if (!annex_b) return {.length_bytes = (c[21] & 3) + 1, .highest_temporal_id = highest_temporal_id_of_hvcc(c)};
  NalFormat format;
  visit_start_codes(c, [&](Bytes nal) {
    format.highest_temporal_id = flashcodec::highest_temporal_id(nal, format.highest_temporal_id);
    return true;
  });
  return format;
}

H264Picture inspect_h264(Bytes packet, const NalFormat& format) {
  constexpr int kSlice = 1, kPartition = 2, kIdr = 5, kSei = 6, kSps = 7, kPps = 8, kSpsExtension = 13, kSubsetSps = 15;
  H264Picture picture;
  bool pictures = false;
  bool reference = false;
  bool parameters = false;
  std::optional<unsigned> recovery;
  visit_nals(packet, format.length_bytes, [&](Bytes nal) {
    const int type = nal[0] & 31;
    if (type == kSei && nal.size() > 1 && !recovery) recovery = recovery_frames(nal);
    parameters = parameters || type == kSps || type == kPps || type == kSpsExtension || type == kSubsetSps;
    if (type != kSlice && type != kPartition && type != kIdr) return true;
    if (!pictures) {
      picture.idr = type == kIdr;
      picture.start = picture.idr ? Start::kYes : start_of_slice(nal, recovery);
    }
    pictures = true;
    reference = (nal[0] >> 5 & 3) != 0;
    return !reference;
  });
  picture.needed = reference || parameters || !pictures;
  return picture;
}

HevcPicture inspect_hevc(Bytes packet, const NalFormat& format) {
  HevcPicture picture;
  bool pictures = false;
  visit_nals(packet, format.length_bytes, [&](Bytes nal) {
    if (nal.size() < 2 || hevc_layer(nal) != 0) return true;
    const int type = hevc_type(nal);
    if (type == kHevcEndOfSequence || type == kHevcEndOfBitstream) picture.ends_sequence = true;
    if (type >= kHevcVps || pictures) return true;
    pictures = true;
    picture.bla = type >= kHevcFirstBla && type <= kHevcLastBla;
    picture.idr = type > kHevcLastBla && type <= kHevcLastIdr;
    picture.start = type >= kHevcFirstBla && type <= kHevcLastIrap ? Start::kYes : Start::kNo;
    return true;
  });
  return picture;
}

bool disposable_hevc(Bytes packet, NalFormat& format) {
  bool pictures = false;
  bool needed = false;
  visit_nals(packet, format.length_bytes, [&](Bytes nal) {
    if (nal.size() < 2 || hevc_layer(nal) != 0) return true;
    const int type = hevc_type(nal);
    format.highest_temporal_id = highest_temporal_id(nal, format.highest_temporal_id);
    needed = needed || outlasts_hevc(type);
    if (type >= kHevcVps) return true;
    const bool non_reference = type <= 14 && type % 2 == 0;
    pictures = true;
    needed = needed || !non_reference || hevc_temporal_id(nal) < format.highest_temporal_id;
    return !needed;
  });
  return pictures && !needed && format.highest_temporal_id >= 0;
}

}  // namespace flashcodec
