// A stand-in for libnvjpeg on a GPU with hardware for JPEG: it reads headers and makes a picture of the size that they
// tell, red 7x + 3y, green x, blue y. What the hardware does not decode it refuses, progressive pictures, and a batch
// with one of these.
//
// Only the functions for batches reach the hardware; the plain ones decode in software. The hardware writes at once,
// whatever its stream still has to do, and is done when that stream has been waited for.
//
// $FAKE_NVJPEG_FAULT: "create" or "decode" fails. $FAKE_NVJPEG_GATHER: the first batch takes until so many headers have
// been read.
#include <dlfcn.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "engines/nvjpeg/nvjpeg_library.h"

namespace {

using flashcodec::kNvjpegPlanarRgb;
using flashcodec::NvjpegImage;

enum Status {
  kSuccess = 0,
  kInvalidParameter = 2,
  kBadJpeg = 3,
  kNotSupported = 4,
  kExecutionFailed = 6,
  kArchMismatch = 7
};

constexpr unsigned char kUnwritten = 0x5A;

struct Header {
  int width = 0;
  int height = 0;
  int components = 0;
  bool baseline = false;
};

struct State {
  int batch = 0;         // pictures that it has been made ready for
  bool at_work = false;  // on the batch before
};

std::mutex lock;
std::condition_variable header_read;
std::set<const void*> live;  // handles, states, headers
std::vector<int> batches;
int headers = 0;
int in_software = 0;

bool fault(std::string_view call) {
  const char* given = std::getenv("FAKE_NVJPEG_FAULT");
  return given != nullptr && call == given;
}

template <class Function>
Function* of_driver(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

bool is_current() {
  void* context = nullptr;
  return of_driver<int(void**)>("cuCtxGetCurrent")(&context) == 0 && context != nullptr;
}

template <class Object>
int create(void** made) {
  if (!is_current()) return kExecutionFailed;
  const std::lock_guard held(lock);
  *made = new Object;
  live.insert(*made);
  return kSuccess;
}

template <class Object>
int destroy(void* made) {
  if (!is_current()) return kExecutionFailed;
  const std::lock_guard held(lock);
  if (live.erase(made) == 0) return kInvalidParameter;
  delete static_cast<Object*>(made);
  return kSuccess;
}

bool known(const void* made) {
  const std::lock_guard held(lock);
  return live.contains(made);
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

// A picture cut short has no end of image.
bool is_whole(const unsigned char* data, std::size_t size) {
  return size > 2 && data[size - 2] == 0xFF && data[size - 1] == 0xD9;
}

void write(const NvjpegImage& image, const Header& header) {
  for (int y = 0; y < header.height; ++y) {
    for (int x = 0; x < header.width; ++x) {
      image.channel[0][y * image.pitch[0] + x] = static_cast<unsigned char>(7 * x + 3 * y);
      image.channel[1][y * image.pitch[1] + x] = static_cast<unsigned char>(x);
      image.channel[2][y * image.pitch[2] + x] = static_cast<unsigned char>(y);
    }
  }
}

void spoil(const NvjpegImage& image, const Header& header) {
  for (int plane = 0; plane < 3; ++plane) {
    std::fill_n(image.channel[plane], image.pitch[plane] * header.height, kUnwritten);
  }
}

struct Picture {
  NvjpegImage image;
  Header header;
};

struct Batch {
  State* state;
  std::vector<Picture> pictures;
};

int write_later(Batch batch, void* stream) {
  const auto run = [](void* data) {
    const std::unique_ptr<Batch> batch(static_cast<Batch*>(data));
    for (const Picture& picture : batch->pictures) write(picture.image, picture.header);
    if (batch->state != nullptr) batch->state->at_work = false;
  };
  return of_driver<int(void*, void (*)(void*), void*)>("cuLaunchHostFunc")(stream, run, new Batch(std::move(batch)));
}

void gather() {
  const char* given = std::getenv("FAKE_NVJPEG_GATHER");
  std::unique_lock held(lock);
  if (given != nullptr) header_read.wait(held, [&] { return headers >= std::atoi(given); });
}

}  // namespace

extern "C" {

int fake_nvjpeg_live() { return static_cast<int>(live.size()); }
// How many pictures were not decoded by the hardware, how many batches were, and how many pictures one of them had.
int fake_nvjpeg_in_software() { return in_software; }
int fake_nvjpeg_batches() { return static_cast<int>(batches.size()); }
int fake_nvjpeg_batch(int number) { return batches.at(static_cast<std::size_t>(number)); }

int nvjpegCreateEx(int backend, void* /*device*/, void* /*pinned*/, unsigned /*flags*/, void** handle) {
  if (fault("create") || backend != flashcodec::kNvjpegHardware) return kArchMismatch;
  return create<int>(handle);
}

int nvjpegDestroy(void* handle) { return destroy<int>(handle); }
int nvjpegJpegStateCreate(void* handle, void** state) {
  return known(handle) ? create<State>(state) : kInvalidParameter;
}
int nvjpegJpegStateDestroy(void* state) { return destroy<State>(state); }
int nvjpegJpegStreamCreate(void* handle, void** header) {
  return known(handle) ? create<Header>(header) : kInvalidParameter;
}
int nvjpegJpegStreamDestroy(void* header) { return destroy<Header>(header); }

int nvjpegJpegStreamParseHeader(void* handle, const unsigned char* data, std::size_t size, void* header) {
  if (!known(handle) || !known(header)) return kInvalidParameter;
  auto& parsed = *static_cast<Header*>(header);
  parsed = header_of(data, size);
  const std::lock_guard held(lock);
  ++headers;
  header_read.notify_all();
  return parsed.width > 0 ? kSuccess : kBadJpeg;
}

// 0 means yes.
int nvjpegDecodeBatchedSupported(void* handle, void* header, int* refused) {
  if (!known(handle) || !known(header)) return kInvalidParameter;
  *refused = static_cast<const Header*>(header)->baseline ? 0 : 1;
  return kSuccess;
}

int nvjpegGetImageInfo(void* handle, const unsigned char* data, std::size_t size, int* components, int* /*subsampling*/,
                       int* widths, int* heights) {
  if (!known(handle)) return kInvalidParameter;
  const Header header = header_of(data, size);
  if (header.width == 0) return kBadJpeg;
  *components = header.components;
  widths[0] = header.width;
  heights[0] = header.height;
  return kSuccess;
}

int nvjpegDecode(void* handle, void* state, const unsigned char* data, std::size_t size, int format, NvjpegImage* image,
                 void* stream) {
  const Header header = header_of(data, size);
  if (!is_current()) return kExecutionFailed;
  if (!known(handle) || !known(state) || format != kNvjpegPlanarRgb) return kInvalidParameter;
  if (header.width == 0) return kBadJpeg;
  ++in_software;
  return write_later({nullptr, {{*image, header}}}, stream);
}

int nvjpegDecodeBatchedInitialize(void* handle, void* state, int batch, int threads, int format) {
  if (!known(handle) || !known(state)) return kInvalidParameter;
  auto& ready = *static_cast<State*>(state);
  if (batch < 1 || threads < 1 || format != kNvjpegPlanarRgb || ready.at_work) return kInvalidParameter;
  ready.batch = batch;
  return kSuccess;
}

int nvjpegDecodeBatched(void* handle, void* state, const unsigned char* const* data, const std::size_t* sizes,
                        NvjpegImage* images, void* stream) {
  if (!is_current()) return kExecutionFailed;
  if (!known(handle) || !known(state)) return kInvalidParameter;
  auto& ready = *static_cast<State*>(state);
  if (ready.batch == 0 || ready.at_work) return kInvalidParameter;
  gather();
  Batch batch{&ready, {}};
  for (int i = 0; i < ready.batch; ++i) {
    const Header header = header_of(data[i], sizes[i]);
    if (!header.baseline || !is_whole(data[i], sizes[i]) || fault("decode")) return kNotSupported;
    batch.pictures.push_back({images[i], header});
  }
  for (const Picture& picture : batch.pictures) spoil(picture.image, picture.header);
  {
    const std::lock_guard held(lock);
    batches.push_back(ready.batch);
  }
  ready.at_work = true;
  return write_later(std::move(batch), stream);
}

}  // extern "C"
