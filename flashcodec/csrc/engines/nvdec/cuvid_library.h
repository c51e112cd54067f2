// The functions of libnvcuvid: NVDEC's parser and decoders.
#pragma once

#include "engines/nvdec/cuvid_abi.h"
#include "native/cuda/driver.h"

namespace flashcodec {

// libnvcuvid.so.1, loaded when first needed.
struct CuvidLibrary {
  template <typename... Arguments>
  using Function = native::cuda::Function<Arguments...>;

  // Throws native::cuda::CudaError if it is not there or too old.
  static const CuvidLibrary& get();

  explicit CuvidLibrary(void* library) : library(library) {}

  void* library;
  Function<CuvidCaps*> get_caps{library, "cuvidGetDecoderCaps"};
  Function<void**, CuvidParserInfo*> create_parser{library, "cuvidCreateVideoParser"};
  Function<void*, CuvidPacket*> parse{library, "cuvidParseVideoData"};
  Function<void*> destroy_parser{library, "cuvidDestroyVideoParser"};
  Function<void**, CuvidCreateInfo*> create_decoder{library, "cuvidCreateDecoder"};
  Function<void*, CuvidReconfigureInfo*> reconfigure{library, "cuvidReconfigureDecoder"};
  Function<void*> destroy_decoder{library, "cuvidDestroyDecoder"};
  Function<void*, CuvidPicture*> decode{library, "cuvidDecodePicture"};
  Function<void*, int, CuvidStatus*> get_status{library, "cuvidGetDecodeStatus"};
  Function<void*, int, native::cuda::Address*, unsigned*, CuvidMapping*> map{library, "cuvidMapVideoFrame64"};
  Function<void*, native::cuda::Address> unmap{library, "cuvidUnmapVideoFrame64"};
};

}  // namespace flashcodec
