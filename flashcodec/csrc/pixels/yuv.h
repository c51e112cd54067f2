// libswscale's arithmetic from YUV to RGB for single rows. It gives libswscale's bytes, which need the whole
// picture there, and for more than 8 bits or 4:4:4 it is many times as fast.
//
// libswscale has three ways, and so are there here:
//   direct   8-bit 4:2:0 and 4:2:2 in its x86 assembly: 16-bit products, a chroma sample for all pixels that share it;
//   stepped  its tables: chroma is rounded to steps of luma. With more than 8 bits, luma and chroma are first
//            rounded to 8, and the chroma of 4:2:0 is interpolated vertically (bicubic);
//   full     4:4:4: 32-bit products.
// Which one holds depends on its version and on the machine, so it is found by trying on a small picture.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "pixels/picture.h"
#include "pixels/pixel_source.h"
#include "pixels/yuv_way.h"

namespace flashcodec {

// Find the way that gives libswscale's bytes for pictures that fit (see YuvRows::fits); kNone if none does.
YuvWay find_yuv_way(const Kernels& kernels, const PictureFormat& format);

// Return the coefficients of libswscale for a matrix and range.
YuvCoefficients yuv_coefficients(const PictureFormat& format);

// The ways of the formats met so far.
class YuvWays {
 public:
  explicit YuvWays(const Kernels& kernels) : kernels_(kernels) {}

  YuvWay of(const PictureFormat& format);

 private:
  const Kernels& kernels_;
  std::vector<std::pair<PictureFormat, YuvWay>> known_;
};

class YuvRows {
 public:
  explicit YuvRows(const Kernels& kernels) : kernels_(kernels) {}

  // Return whether a picture's size suits a way; odd sizes need libswscale.
  static bool fits(const Picture& picture);
  // Begin with a picture, whose memory is read until the next start.
  void start(const Picture& picture, YuvWay way);
  // Return whether neighbouring pixels share chroma: then x and count must be even.
  bool shares_chroma() const { return way_ != YuvWay::kFull; }
  void read(int y, int x, int count, Planes out);

 private:
  template <class T>
  const T* sample(int plane, int y, int x) const {
    return reinterpret_cast<const T*>(picture_.planes[plane] + static_cast<ptrdiff_t>(picture_.strides[plane]) * y) + x;
  }
  void read_stepped(int y, int x, int count, Planes out);
  const uint8_t* mixed_chroma(int plane, int y, int x, int count, std::vector<uint8_t>& out);

  const Kernels& kernels_;
  Picture picture_;
  YuvWay way_ = YuvWay::kNone;
  YuvCoefficients coefficients_{};
  int extra_bits_ = 0;
  int chroma_row_shift_ = 0;
  std::array<std::vector<uint8_t>, 2> chroma_;
};

}  // namespace flashcodec
