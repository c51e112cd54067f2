#include "codecs/frame_numbers.h"

#include "codecs/bit_reader.h"

namespace flashcodec {

namespace {

using Bytes = std::span<const uint8_t>;

constexpr int kSlice = 1, kPartition = 2, kIdr = 5, kSps = 7;
constexpr size_t kSliceHead = 24;

}  // namespace

H264Slice read_h264_slice(Bytes nal, const H264Sps& sps) {
  const std::vector<uint8_t> head = unescape(nal.subspan(1), kSliceHead);
  BitReader bits(head);
  for (int i = 0; i < 3; ++i) bits.exp_golomb();  // first_mb_in_slice, slice_type, pic_parameter_set_id
  if (sps.separate_planes) bits.skip(2);
  return {.frame_number = bits.bits(sps.frame_number_bits),
          .idr = (nal[0] & 31) == kIdr,
          .reference = (nal[0] >> 5 & 3) != 0};
}

FrameNumbers::FrameNumbers(Bytes configuration) : sps_(first_h264_sps(configuration)) {
  if (sps_) several_ = (configuration[5] & 31) > 1;
  if (sps_) return;
  visit_nals(configuration, 0, [&](Bytes nal) {
    if ((nal[0] & 31) == kSps) take_sps(nal);
    return true;
  });
}

bool FrameNumbers::gap(Bytes packet, const NalFormat& format) {
  bool gap = false;
  bool slices = false;
  visit_nals(packet, format.length_bytes, [&](Bytes nal) {
    const int type = nal[0] & 31;
    if (type == kSps) take_sps(nal);
    if (type != kSlice && type != kPartition && type != kIdr) return true;
    slices = true;
    gap = sps_ && !several_ && take_slice(nal);
    return false;
  });
  if (!slices) last_.reset();  // its picture is damaged, not missing
  return gap;
}

void FrameNumbers::take_sps(Bytes nal) {
  std::optional<H264Sps> sps = read_h264_sps(nal);
  several_ = several_ || (sps && sps_ && sps->id != sps_->id);
  sps_ = sps;
}

bool FrameNumbers::take_slice(Bytes nal) {
  const auto [number, idr, reference] = read_h264_slice(nal, *sps_);
  const uint32_t next = last_ ? (*last_ + 1) % (1U << sps_->frame_number_bits) : number;
  // A picture may have started the numbers again, which its slice tells only further on (7.4.3): then 1 comes next.
  const bool told = !idr && !sps_->allows_gaps && last_ && number > 1;
  const bool gap = told && number != *last_ && number != next;
  if (reference) last_ = number;
  return gap;
}

}  // namespace flashcodec
