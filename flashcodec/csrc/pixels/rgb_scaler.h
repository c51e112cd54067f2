// libswscale's own conversion to RGB, of whole pictures.
#pragma once

#include <cstddef>
#include <memory>

#include "pixels/picture.h"

struct SwsContext;

namespace flashcodec {

// Keeps libswscale's context while pictures stay alike.
class RgbScaler {
 public:
  // Convert a picture to RGB24, with its own matrix (BT.601 if it names none) and range, into rows `stride` bytes
  // apart. Throws std::runtime_error if libswscale cannot.
  void convert(const Picture& picture, uint8_t* rgb, size_t stride);

 private:
  struct Free {
    void operator()(SwsContext* context) const;
  };

  bool made_for(const Picture& picture) const;

  PictureFormat format_;
  int width_ = 0;
  int height_ = 0;
  std::unique_ptr<SwsContext, Free> context_;
};

}  // namespace flashcodec
