// Whether the pictures that a picture refers to are there: NVDEC takes others in place of lost ones, and says nothing.
#pragma once

#include <map>

#include "engines/nvdec/cuvid_abi.h"

namespace flashcodec {

// Follows the pictures of an H.264 or HEVC stream; of other codecs nothing is known.
class ReferenceCheck {
 public:
  // `codec`: NVIDIA's number.
  explicit ReferenceCheck(int codec) : codec_(codec) {}

  // Forget what came before.
  void flush();
  // Take the next picture; return whether what it refers to is there. If it `begins`, that is not asked.
  bool complete(const CuvidPicture& picture, bool begins);

 private:
  bool h264_complete(const CuvidH264& picture);
  bool hevc_complete(const CuvidHevc& picture) const;
  bool holds(int surface, int order) const;

  const int codec_;
  int frame_num_ = 0;            // H.264: of the newest picture that may be referred to
  std::map<int, int> orders_{};  // HEVC: picture order counts of what surfaces hold
};

}  // namespace flashcodec
