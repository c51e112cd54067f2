#include "codecs/frame_numbers.h"

#include "codecs/bit_reader.h"

namespace flashcodec {

namespace {

using Bytes = std::span<const uint8_t>;

constexpr int kSlice = 1, kPartition = 2, kIdr = 5, kSps = 7;
constexpr size_t kSliceHead = 24;

}  // namespace

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

// slice_header(), 7.3.3, up to frame_num
bool FrameNumbers::take_slice(Bytes slice) {
  const std::vector<uint8_t> head = unescape(slice.subspan(1), kSliceHead);
  BitReader bits(head);
  for (int i = 0; i < 3; ++i) bits.exp_golomb();  // first_mb_in_slice, slice_type, pic_parameter_set_id
  if (sps_->separate_planes) bits.skip(2);
  const uint32_t number = bits.bits(sps_->frame_number_bits);
  const bool idr = (slice[0] & 31) == kIdr;
  const uint32_t next = last_ ? (*last_ + 1) % (1U << sps_->frame_number_bits) : number;
  // A picture may have started the numbers again, which its slice tells only further on (7.4.3): then 1 comes next.
  const bool told = !idr && !sps_->allows_gaps && last_ && number > 1;
  const bool gap = told && number != *last_ && number != next;
  const bool reference = (slice[0] >> 5 & 3) != 0;
  if (reference) last_ = number;
  return gap;
}

}  // namespace flashcodec
