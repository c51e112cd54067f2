// The functions of libnvjpeg that are used: a GPU's hardware for JPEG.
#pragma once

#include <array>
#include <cstddef>

#include "native/cuda/driver.h"

namespace flashcodec {

// nvjpegImage_t, as the library's ABI has it (nvjpeg.h): planes in the GPU's memory.
struct NvjpegImage {
  std::array<unsigned char*, 4> channel;
  std::array<std::size_t, 4> pitch;
};

constexpr int kNvjpegHardware = 3;                  // NVJPEG_BACKEND_HARDWARE
constexpr int kNvjpegPlanarRgb = 3;                 // NVJPEG_OUTPUT_RGB
constexpr unsigned kNvjpegSmoothChroma = 1U << 5U;  // NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION

// Loaded when it is first needed, if the process has none yet.
struct NvjpegLibrary {
  template <typename... Arguments>
  using Function = native::cuda::Function<Arguments...>;

  // Throws native::cuda::CudaError if there is none.
  static const NvjpegLibrary& get();

  explicit NvjpegLibrary(void* library) : library(library) {}

  void* library;
  Function<int, void*, void*, unsigned, void**> create{library, "nvjpegCreateEx"};
  Function<void*> destroy{library, "nvjpegDestroy"};
  Function<void*, void**> create_state{library, "nvjpegJpegStateCreate"};
  Function<void*> destroy_state{library, "nvjpegJpegStateDestroy"};
  Function<void*, void**> create_header{library, "nvjpegJpegStreamCreate"};
  Function<void*> destroy_header{library, "nvjpegJpegStreamDestroy"};
  Function<void*, const unsigned char*, std::size_t, void*> parse_header{library, "nvjpegJpegStreamParseHeader"};
  Function<void*, void*, int*> supports{library, "nvjpegDecodeBatchedSupported"};
  Function<void*, const unsigned char*, std::size_t, int*, int*, int*, int*> get_info{library, "nvjpegGetImageInfo"};
  Function<void*, void*, int, int, int> begin{library, "nvjpegDecodeBatchedInitialize"};
  Function<void*, void*, const unsigned char* const*, const std::size_t*, NvjpegImage*, void*> decode{
      library, "nvjpegDecodeBatched"};
};

}  // namespace flashcodec
