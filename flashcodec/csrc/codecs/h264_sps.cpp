#include "codecs/h264_sps.h"

#include <algorithm>
#include <array>

#include "codecs/bit_reader.h"
#include "codecs/nal.h"

namespace flashcodec {

namespace {

constexpr uint32_t kChroma444 = 3;

int32_t signed_exp_golomb(BitReader& bits) {
  const uint32_t code = bits.exp_golomb();
  return static_cast<int32_t>((code & 1) != 0 ? code / 2 + 1U : 0U - code / 2);
}

// scaling_list(), 7.3.2.1.1.1
void skip_scaling_list(BitReader& bits, int size) {
  int32_t last = 8;
  int32_t next = 8;
  for (int i = 0; i < size && next != 0; ++i) {
    next = (last + signed_exp_golomb(bits) % 256 + 256) % 256;
    last = next == 0 ? last : next;
  }
}

void skip_scaling_lists(BitReader& bits, uint32_t chroma_format) {
  const int lists = chroma_format == kChroma444 ? 12 : 8;
  for (int i = 0; i < lists; ++i) {
    if (bits.flag()) skip_scaling_list(bits, i < 6 ? 16 : 64);
  }
}

// Returns separate_colour_plane_flag.
bool skip_chroma(BitReader& bits) {
  const uint32_t chroma_format = bits.exp_golomb();
  const bool separate = chroma_format == kChroma444 && bits.flag();
  bits.exp_golomb();  // bit depths
  bits.exp_golomb();
  bits.skip(1);
  if (bits.flag()) skip_scaling_lists(bits, chroma_format);
  return separate;
}

// Returns false for a type that does not exist.
bool skip_order_counts(BitReader& bits, uint32_t type) {
  constexpr uint32_t kLongestCycle = 255;
  if (type == 0) bits.exp_golomb();
  if (type == 1) {
    bits.skip(1);
    for (int i = 0; i < 2; ++i) bits.exp_golomb();
    const uint32_t cycle = bits.exp_golomb();
    for (uint32_t i = 0; i < std::min(cycle, kLongestCycle); ++i) bits.exp_golomb();
  }
  return type <= 2;
}

// hrd_parameters(), E.1.2
void skip_hrd(BitReader& bits) {
  constexpr uint32_t kMostCounts = 31;
  const uint32_t counts = std::min(bits.exp_golomb(), kMostCounts);
  bits.skip(4 + 4);
  for (uint32_t i = 0; i <= counts; ++i) {
    bits.exp_golomb();
    bits.exp_golomb();
    bits.skip(1);
  }
  bits.skip(4 * 5);
}

// vui_parameters(), E.1.1
void read_vui(BitReader& bits, H264Sps& sps) {
  constexpr uint32_t kOwnShape = 255;
  sps.tells_shape = bits.flag();
  if (sps.tells_shape && bits.bits(8) == kOwnShape) bits.skip(16 + 16);
  if (bits.flag()) bits.skip(1);  // overscan
  sps.tells_colours = bits.flag();
  if (sps.tells_colours) {
    bits.skip(3 + 1);
    if (bits.flag()) bits.skip(3 * 8);
  }
  for (int i = bits.flag() ? 2 : 0; i > 0; --i) bits.exp_golomb();  // places of chroma samples
  if (bits.flag()) bits.skip(32 + 32 + 1);                          // timing
  const bool nal_hrd = bits.flag();
  if (nal_hrd) skip_hrd(bits);
  const bool vcl_hrd = bits.flag();
  if (vcl_hrd) skip_hrd(bits);
  if (nal_hrd || vcl_hrd) bits.skip(1);
  bits.skip(1);              // pic_struct_present_flag
  if (!bits.flag()) return;  // bitstream_restriction_flag
  bits.skip(1);
  for (int i = 0; i < 4; ++i) bits.exp_golomb();
  const uint32_t reordered = bits.exp_golomb();
  if (!bits.overrun()) sps.reordered_frames = reordered;
}

}  // namespace

std::optional<H264Sps> read_h264_sps(std::span<const uint8_t> nal) {
  constexpr size_t kLongest = 4096;
  if (nal.size() < 4) return std::nullopt;
  const std::vector<uint8_t> set = unescape(nal.subspan(1), kLongest);
  BitReader bits(set);
  constexpr std::array<uint32_t, 13> with_chroma{100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135};
  H264Sps sps{.profile = bits.bits(8)};
  bits.skip(16);
  sps.id = bits.exp_golomb();
  if (std::ranges::find(with_chroma, sps.profile) != with_chroma.end()) sps.separate_planes = skip_chroma(bits);
  sps.frame_number_bits = static_cast<int>(std::min<uint32_t>(bits.exp_golomb(), 12)) + 4;
  sps.order_count_type = bits.exp_golomb();
  if (!skip_order_counts(bits, sps.order_count_type)) return std::nullopt;
  bits.exp_golomb();  // max_num_ref_frames
  sps.allows_gaps = bits.flag();
  bits.exp_golomb();               // width
  bits.exp_golomb();               // height
  if (!bits.flag()) bits.skip(1);  // frame_mbs_only_flag, mb_adaptive_frame_field_flag
  bits.skip(1);
  if (bits.flag()) {  // frame_cropping_flag
    for (int i = 0; i < 4; ++i) bits.exp_golomb();
  }
  if (bits.overrun()) return std::nullopt;
  if (bits.flag()) read_vui(bits, sps);
  return sps;
}

std::optional<H264Sps> first_h264_sps(std::span<const uint8_t> record) {
  constexpr size_t kHead = 8;  // behind it is the first set
  if (record.size() < kHead || record[0] != 1 || (record[5] & 31) == 0) return std::nullopt;
  const size_t length = static_cast<size_t>(record[6]) << 8 | record[7];
  return read_h264_sps(record.subspan(kHead, std::min(length, record.size() - kHead)));
}

}  // namespace flashcodec
