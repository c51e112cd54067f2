#include "engines/nvdec/reference_check.h"

#include <algorithm>
#include <set>
#include <span>

namespace flashcodec {

void ReferenceCheck::flush() {
  frame_num_ = 0;
  orders_.clear();
}

bool ReferenceCheck::complete(const CuvidPicture& picture, bool begins) {
  bool complete = true;
  if (codec_ == kCuvidH264) complete = h264_complete(picture.h264);
  if (codec_ == kCuvidHevc) {
    complete = hevc_complete(picture.hevc);
    orders_[picture.surface] = picture.hevc.order;
  }
  return begins || complete;
}

// Numbers count the pictures that may be referred to: one that is left out was lost. A picture may have started them
// again, which it does not tell: then 1 comes next (ITU-T H.264, 7.4.3).
bool ReferenceCheck::h264_complete(const CuvidH264& picture) {
  const int mask = (1 << (picture.log2_frame_nums_minus_4 + 4)) - 1;
  const int step = (picture.frame_num - frame_num_) & mask;
  if (picture.is_reference != 0) frame_num_ = picture.frame_num;
  return step <= 1 || picture.frame_num <= 1;
}

// The sets name the pictures that are referred to (ITU-T H.265, 8.3.2).
bool ReferenceCheck::hevc_complete(const CuvidHevc& picture) const {
  std::set<int> surfaces;
  const auto there = [&](const std::array<uint8_t, 8>& places, int count, bool long_term) {
    const auto set = std::span(places).first(static_cast<size_t>(std::clamp(count, 0, 8)));
    return std::ranges::all_of(set, [&](uint8_t place) {
      if (place >= picture.surfaces.size()) return false;
      const int surface = picture.surfaces.at(place);
      const bool known = long_term ? orders_.contains(surface) : holds(surface, picture.orders.at(place));
      return known && surfaces.insert(surface).second;
    });
  };
  return there(picture.in_before, picture.before, false) && there(picture.in_after, picture.after, false) &&
         there(picture.in_long_term, picture.long_term, true) &&
         static_cast<int>(surfaces.size()) == picture.references;
}

bool ReferenceCheck::holds(int surface, int order) const {
  const auto held = orders_.find(surface);
  return held != orders_.end() && held->second == order;
}

}  // namespace flashcodec
