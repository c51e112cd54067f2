#include "sample_claims.h"

#include <algorithm>
#include <utility>

namespace flashcodec {

namespace {

uint32_t word(std::span<const uint8_t> bytes, size_t number) {
  const std::span<const uint8_t> b = bytes.subspan(4 * number);
  return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
}

constexpr uint32_t type(const char (&name)[5]) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(name[i]);
  return value;
}

constexpr uint32_t kTrack = type("trak"), kHandler = type("hdlr"), kTimes = type("stts"), kSizes = type("stsz"),
                   kRun = type("trun");

// How many bytes of a box are looked at, from its type on; 0 for boxes that are not.
size_t looked_at(uint32_t box) {
  switch (box) {
    case kTrack:
      return 4;
    case kHandler:
    case kSizes:
      return 16;
    case kTimes:
      return 20;
    case kRun:
      return 12;
    default:
      return 0;
  }
}

// QuickTime's tracks have a second handler, of the data, that says nothing about the kind of track.
bool is_sound(uint32_t handler, bool known) {
  if (handler == type("soun")) return true;
  return known && handler != type("vide") && handler != type("subp") && handler != type("clcp");
}

}  // namespace

int64_t SampleClaims::look_at(int64_t offset, std::span<const uint8_t> bytes) {
  constexpr size_t kCut = kLongest - 1;
  if (offset != end_) kept_ = 0;
  const size_t head = std::min(bytes.size(), kCut);
  std::copy_n(bytes.begin(), head, seam_.begin() + static_cast<std::ptrdiff_t>(kept_));
  const Bytes seam(seam_.data(), kept_ + head);
  if (kept_ > 0) find_boxes(offset - static_cast<int64_t>(kept_), seam);
  find_boxes(offset, bytes);
  const Bytes rest = bytes.size() < kCut ? seam : bytes;
  const Bytes tail = rest.last(std::min(rest.size(), kCut));
  std::copy(tail.begin(), tail.end(), seam_.begin());
  kept_ = tail.size();
  end_ = offset + static_cast<int64_t>(bytes.size());
  return claimed_;
}

void SampleClaims::find_boxes(int64_t offset, Bytes bytes) {
  for (size_t at = 0; at + 4 <= bytes.size(); ++at) {
    const Bytes rest = bytes.subspan(at);
    const size_t size = looked_at(word(rest, 0));
    if (size == 0 || rest.size() < size) continue;
    if (seen_.insert(offset + static_cast<int64_t>(at)).second) look_at_box(rest.first(size));
  }
}

void SampleClaims::look_at_box(Bytes box) {
  // Flags of a run (ISO/IEC 14496-12, 8.8.8): duration, size, flags, composition offset for each sample. With any of
  // them, each sample takes bytes that must be there.
  constexpr unsigned kPerSample = 0xF00;
  switch (word(box, 0)) {
    case kTrack:
      sound_ = single_ticks_ = false;
      exempt_ = 0;
      break;
    case kHandler:
      sound_ = is_sound(word(box, 3), sound_);
      break;
    case kTimes:
      single_ticks_ = word(box, 2) == 1 && word(box, 4) == 1;
      break;
    case kSizes:
      if (word(box, 2) != 0) exempt_ += word(box, 3);
      break;
    case kRun:
      if ((word(box, 1) & kPerSample) == 0) claimed_ += word(box, 2);
      break;
  }
  if (!sound_ || !single_ticks_) claimed_ += std::exchange(exempt_, 0);
}

}  // namespace flashcodec
