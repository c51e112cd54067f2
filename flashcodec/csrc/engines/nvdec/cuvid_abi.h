// What libnvcuvid takes and gives, as its ABI has it (NVIDIA Video Codec SDK, nvcuvid.h and cuviddec.h): no header of
// NVIDIA's is needed to build.
#pragma once

#include <array>
#include <cstdint>

namespace flashcodec {

struct CuvidCaps {  // CUVIDDECODECAPS
  int codec;
  int chroma;
  unsigned bit_depth_minus_8;
  std::array<unsigned, 3> reserved1;
  uint8_t supported;
  uint8_t engines;
  uint16_t output_formats;
  unsigned max_width;
  unsigned max_height;
  unsigned max_macroblocks;
  uint16_t min_width;
  uint16_t min_height;
  uint8_t histogram_supported;
  uint8_t counter_bit_depth;
  uint16_t max_histogram_bins;
  std::array<unsigned, 10> reserved3;
};

template <class Number>
struct CuvidArea {
  Number left;
  Number top;
  Number right;
  Number bottom;
};

struct CuvidFormat {  // CUVIDEOFORMAT
  int codec;
  unsigned rate_numerator;
  unsigned rate_denominator;
  uint8_t progressive;
  uint8_t luma_bits_minus_8;
  uint8_t chroma_bits_minus_8;
  uint8_t least_surfaces;
  unsigned coded_width;
  unsigned coded_height;
  CuvidArea<int> display;
  int chroma;
  unsigned bit_rate;
  std::array<int, 2> aspect;
  uint8_t signal;  // 3 bits of video format, then one of full range
  uint8_t primaries;
  uint8_t transfer;
  uint8_t matrix;
  unsigned header_bytes;
};

struct CuvidCreateInfo {  // CUVIDDECODECREATEINFO
  unsigned long width;
  unsigned long height;
  unsigned long surfaces;
  int codec;
  int chroma;
  unsigned long flags;
  unsigned long bit_depth_minus_8;
  unsigned long intra_only;
  unsigned long max_width;
  unsigned long max_height;
  unsigned long reserved1;
  CuvidArea<int16_t> display;
  int output_format;
  int deinterlacing;
  unsigned long target_width;
  unsigned long target_height;
  unsigned long mapped_surfaces;
  void* lock;
  CuvidArea<int16_t> target;
  unsigned long histogram;
  std::array<unsigned long, 4> reserved2;
};

struct CuvidReconfigureInfo {  // CUVIDRECONFIGUREDECODERINFO
  unsigned width;
  unsigned height;
  unsigned target_width;
  unsigned target_height;
  unsigned surfaces;
  std::array<unsigned, 12> reserved1;
  CuvidArea<int16_t> display;
  CuvidArea<int16_t> target;
  std::array<unsigned, 11> reserved2;
};

struct CuvidH264Reference {  // CUVIDH264DPBENTRY
  int surface;
  int frame_num;
  int is_long_term;
  int is_absent;
  int fields;  // that may be referred to
  std::array<int, 2> orders;
};

struct CuvidH264 {  // the beginning of CUVIDH264PICPARAMS
  int log2_frame_nums_minus_4;
  std::array<int, 21> other;
  int is_reference;
  int frame_num;
  std::array<int, 2> orders;
  std::array<CuvidH264Reference, 16> references;
};

struct CuvidHevc {  // the beginning of CUVIDHEVCPICPARAMS
  std::array<int, 2> size;
  std::array<uint8_t, 72> other;
  std::array<uint16_t, 42> tiles;
  std::array<uint8_t, 28> extensions;
  std::array<unsigned, 8> reserved;
  std::array<int, 2> bits;
  int references;  // of the picture, in the three sets
  int before;
  int after;
  int long_term;
  int order;  // picture order count
  std::array<int, 16> surfaces;
  std::array<int, 16> orders;
  std::array<uint8_t, 16> are_long_term;
  std::array<uint8_t, 8> in_before;  // places in `surfaces`
  std::array<uint8_t, 8> in_after;
  std::array<uint8_t, 8> in_long_term;
};

// The beginning of CUVIDPICPARAMS: what the parser says of a picture goes to the decoder as it is.
struct CuvidPicture {
  int width_in_macroblocks;
  int height_in_macroblocks;
  int surface;
  int is_field;
  int is_bottom_field;
  int is_second_field;
  unsigned bytes;
  const uint8_t* data;
  unsigned slices;
  const unsigned* offsets;
  int is_reference;
  int is_intra;
  std::array<unsigned, 30> reserved;
  union {
    CuvidH264 h264;
    CuvidHevc hevc;
  };
};

struct CuvidShown {  // CUVIDPARSERDISPINFO
  int surface;
  int progressive;
  int top_field_first;
  int repeat_first_field;
  long long timestamp;
};

struct CuvidPacket {  // CUVIDSOURCEDATAPACKET
  unsigned long flags;
  unsigned long bytes;
  const uint8_t* data;
  long long timestamp;
};

struct CuvidParserInfo {  // CUVIDPARSERPARAMS
  int codec;
  unsigned surfaces;
  unsigned clock_rate;
  unsigned error_threshold;
  unsigned display_delay;
  unsigned flags;
  std::array<unsigned, 4> reserved1;
  void* user;
  int (*on_sequence)(void*, CuvidFormat*);
  int (*on_decode)(void*, CuvidPicture*);
  int (*on_display)(void*, CuvidShown*);
  void* on_operating_point;
  std::array<void*, 6> reserved2;
  void* extended;
};

struct CuvidMapping {  // CUVIDPROCPARAMS
  int progressive;
  int second_field;
  int top_field_first;
  int unpaired_field;
  std::array<unsigned, 2> reserved1;
  unsigned long long raw_input;
  std::array<unsigned, 2> raw_input_format;
  unsigned long long raw_output;
  std::array<unsigned, 2> raw_output_format;
  void* stream;
  std::array<unsigned, 46> reserved2;
  void* histogram;
  void* reserved3;
};

struct CuvidStatus {  // CUVIDGETDECODESTATUS
  int status;
  std::array<unsigned, 31> reserved1;
  std::array<void*, 8> reserved2;
};

constexpr int kCuvidH264 = 4;  // cudaVideoCodec
constexpr int kCuvidHevc = 8;

constexpr unsigned long kCuvidEndOfStream = 1;
constexpr unsigned long kCuvidTimestamp = 2;
constexpr unsigned long kCuvidEndOfPicture = 8;
constexpr unsigned long kCuvidDedicatedUnits = 4;  // cudaVideoCreate_PreferCUVID
constexpr int kCuvidError = 8;                     // and what is higher
constexpr uint8_t kCuvidFullRange = 1 << 3;

}  // namespace flashcodec
