// What the NAL unit headers of H.264 and HEVC packets tell without decoding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "codecs/start.h"
#include "codecs/start_codes.h"

namespace flashcodec {

// Calls visit(nal) for each NAL unit until it returns false.
template <class Visit>
void visit_with_lengths(std::span<const uint8_t> data, int length_bytes, Visit visit) {
  while (data.size() > static_cast<size_t>(length_bytes)) {
    size_t length = 0;
    for (int i = 0; i < length_bytes; ++i) length = length << 8 | data[i];
    data = data.subspan(length_bytes);
    const std::span<const uint8_t> nal = data.first(std::min(length, data.size()));
    if (!nal.empty() && !visit(nal)) return;
    data = data.subspan(nal.size());
  }
}

template <class Visit>
void visit_nals(std::span<const uint8_t> data, int length_bytes, Visit visit) {
  if (length_bytes > 0) {
    visit_with_lengths(data, length_bytes, visit);
  } else {
    visit_start_codes(data, visit);
  }
}

// The payload without emulation prevention bytes (H.264 7.3.1), at most `limit` bytes of it.
std::vector<uint8_t> unescape(std::span<const uint8_t> nal, size_t limit);

// How NAL units are told apart, and what the parameter sets say about temporal layers.
struct NalFormat {
  int length_bytes = 0;          // 0: start codes (Annex B)
  int highest_temporal_id = -1;  // HEVC; -1 if unknown

  // From avcC or hvcC, or Annex B parameter sets.
  static NalFormat of_h264(std::span<const uint8_t> configuration);
  static NalFormat of_hevc(std::span<const uint8_t> configuration);
};

struct H264Picture {
  bool needed = true;  // a reference (nal_ref_idc of any slice != 0, 7.4.1), or with parameter sets beside it
  bool idr = false;
  Start start = Start::kDamaged;
};

H264Picture inspect_h264(std::span<const uint8_t> packet, const NalFormat& format);

struct HevcPicture {
  Start start = Start::kDamaged;
  bool idr = false;
  bool bla = false;
  bool ends_sequence = false;  // an end of sequence or bitstream behind it (7.4.2.4.4)
};

HevcPicture inspect_hevc(std::span<const uint8_t> packet, const NalFormat& format);

// Whether the packet is a sub-layer non-reference picture of the highest temporal layer (HEVC 7.4.2.2), with nothing
// beside it that later pictures need. An SPS in the packet may raise the highest layer.
bool disposable_hevc(std::span<const uint8_t> packet, NalFormat& format);

}  // namespace flashcodec
