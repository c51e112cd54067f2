// libswscale's own conversion to RGB, of whole pictures.
#pragma once

#include <cstddef>
#include <memory>

#include "pixels/picture.h"

struct SwsContext;

namespace flashcodec {

enum class RgbDepth { k8, k16 };  // bits a channel, in this machine's byte order

// Rows `stride` bytes apart that have room for width x height pixels.
struct RgbTarget {
  uint8_t* data;
  size_t stride;
  int width;
  int height;
  RgbDepth depth = RgbDepth::k8;
};

// Keeps libswscale's context while pictures and targets stay alike.
class RgbScaler {
 public:
  // Convert a picture to RGB, with its own matrix (BT.601 if it names none) and range, and to the target's size. Throws
  // std::runtime_error if libswscale cannot.
  void convert(const Picture& picture, const RgbTarget& target);

 private:
  struct Free {
    void operator()(SwsContext* context) const;
  };

  struct Pair {
    PictureFormat format;
    int width = 0;
    int height = 0;
    int target_width = 0;
    int target_height = 0;
    RgbDepth depth = RgbDepth::k8;
    bool operator==(const Pair&) const = default;
  };

  static SwsContext* make_context(const Pair& pair);

  Pair made_for_;
  std::unique_ptr<SwsContext, Free> context_;
};

}  // namespace flashcodec
