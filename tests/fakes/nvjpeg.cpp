// A stand-in for libnvjpeg on a GPU with hardware for JPEG: it reads headers and makes a picture of the size that they
// tell, red 7x + 3y, green x, blue y. What the hardware does not decode it refuses: grey and progressive ones.
//
// $FAKE_NVJPEG_FAULT: "create" or "decode" fails.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "engines/nvjpeg/nvjpeg_library.h"

namespace {

constexpr int kBadJpeg = 3;
constexpr int kNotSupported = 4;
constexpr int kArchMismatch = 7;

int live = 0;

struct Header {
  int width = 0;
  int height = 0;
  int components = 0;
  bool baseline = false;
};

bool fault(std::string_view call) {
  const char* given = std::getenv("FAKE_NVJPEG_FAULT");
  return given != nullptr && call == given;
}

// Of the first frame (ITU-T T.81, B.2.2).
Header header_of(const unsigned char* data, std::size_t size) {
  Header header;
  for (std::size_t at = 2; at + 10 < size;) {
    const int marker = data[at + 1];
    if (marker >= 0xC0 && marker <= 0xC2) {
      header.height = data[at + 5] << 8 | data[at + 6];
      header.width = data[at + 7] << 8 | data[at + 8];
      header.components = data[at + 9];
      header.baseline = marker != 0xC2;
      return header;
    }
    at += 2U + (data[at + 2] << 8 | data[at + 3]);
  }
  return header;
}

}  // namespace

extern "C" {

int fake_nvjpeg_live() { return live; }

int nvjpegCreateEx(int backend, void* /*device*/, void* /*pinned*/, unsigned /*flags*/, void** handle) {
  if (fault("create") || backend != flashcodec::kNvjpegHardware) return kArchMismatch;
  *handle = &live;
  ++live;
  return 0;
}

int nvjpegDestroy(void* /*handle*/) {
  --live;
  return 0;
}

int nvjpegJpegStateCreate(void* /*handle*/, void** state) {
  *state = &live;
  ++live;
  return 0;
}

int nvjpegJpegStateDestroy(void* /*state*/) {
  --live;
  return 0;
}

int nvjpegGetImageInfo(void* /*handle*/, const unsigned char* data, std::size_t size, int* components,
                       int* /*subsampling*/, int* widths, int* heights) {
  const Header header = header_of(data, size);
  if (header.width == 0) return kBadJpeg;
  *components = header.components;
  widths[0] = header.width;
  heights[0] = header.height;
  return 0;
}

int nvjpegDecode(void* /*handle*/, void* /*state*/, const unsigned char* data, std::size_t size, int format,
                 flashcodec::NvjpegImage* image, void* /*stream*/) {
  const Header header = header_of(data, size);
  if (!header.baseline || fault("decode")) return kNotSupported;
  if (format != flashcodec::kNvjpegPlanarRgb) return kBadJpeg;
  for (int y = 0; y < header.height; ++y) {
    for (int x = 0; x < header.width; ++x) {
      image->channel[0][y * image->pitch[0] + x] = static_cast<unsigned char>(7 * x + 3 * y);
      image->channel[1][y * image->pitch[1] + x] = static_cast<unsigned char>(x);
      image->channel[2][y * image->pitch[2] + x] = static_cast<unsigned char>(y);
    }
  }
  return 0;
}

}  // extern "C"
