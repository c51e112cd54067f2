#include "codecs/frame_numbers.h"

#include "codecs/bit_reader.h"

namespace flashcodec {

namespace {

using Bytes = std::span<const uint8_t>;

constexpr int kSlice = 1, kPartition = 2, kIdr = 5, kSps = 7;
constexpr size_t kSliceHead = 24;

}  // namespace

FrameNumbers::FrameNumbers(Bytes configuration) : sps_(first_h264_sps(configuration)) {
  if (sps_) return;
  visit_nals(configuration, 0, [&](Bytes nal) {
    if ((nal[0] & 31) == kSps && !sps_) sps_ = read_h264_sps(nal);
    return !sps_;
  });
}

bool FrameNumbers::gap(Bytes packet, const NalFormat& format) {
  bool gap = false;
  bool slices = false;
  visit_nals(packet, format.length_bytes, [&](Bytes nal) {
    const int type = nal[0] & 31;
    if (type == kSps) sps_ = read_h264_sps(nal);
    if (type != kSlice && type != kPartition && type != kIdr) return true;
    slices = true;
    gap = sps_ && take_slice(nal);
    return false;
  });
  if (!slices) last_.reset();  // its picture is damaged, not missing
  return gap;
}

// slice_header(), 7.3.3, up to frame_num
bool FrameNumbers::take_slice(Bytes slice) {
  const std::vector<uint8_t> head = unescape(slice.subspan(1), kSliceHead);
  BitReader bits(head);
  for (int i = 0; i < 3; ++i) bits.exp_golomb();  // first_mb_in_slice, slice_type, pic_parameter_set_id
  if (sps_->separate_planes) bits.skip(2);
  const uint32_t number = bits.bits(sps_->frame_number_bits);
  const bool idr = (slice[0] & 31) == kIdr;
  const uint32_t next = last_ ? (*last_ + 1) % (1U << sps_->frame_number_bits) : number;
  const bool gap = !idr && !sps_->allows_gaps && last_ && number != *last_ && number != next;
  const bool reference = (slice[0] >> 5 & 3) != 0;
  if (reference) last_ = number;
  return gap;
}

}  // namespace flashcodec
