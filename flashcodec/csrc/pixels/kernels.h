// The inner loops of colour conversion, resize and layout, compiled for several instruction sets. All of them
// give the same bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace flashcodec {

// `blend` may read this many bytes behind its rows.
constexpr int kRowPadding = 64;

// One row of each of red, green and blue.
struct Planes {
  uint8_t* red;
  uint8_t* green;
  uint8_t* blue;

  Planes operator+(int64_t bytes) const { return {red + bytes, green + bytes, blue + bytes}; }
};

struct ConstPlanes {
  const uint8_t* red;
  const uint8_t* green;
  const uint8_t* blue;

  ConstPlanes(const uint8_t* r, const uint8_t* g, const uint8_t* b) : red(r), green(g), blue(b) {}
  explicit ConstPlanes(const Planes& planes) : red(planes.red), green(planes.green), blue(planes.blue) {}

  ConstPlanes operator+(int64_t bytes) const { return {red + bytes, green + bytes, blue + bytes}; }
};

// Coefficients of libswscale's three ways from YUV to RGB, see yuv.h.
struct YuvCoefficients {
  // Fixed point with 13 bits of fraction.
  int16_t luma, red_v, green_u, green_v, blue_u;
  int16_t luma_offset;       // of 8-bit luma with 3 more bits
  int16_t fine_luma_offset;  // of 8-bit luma with 9 more bits
  // Chroma as steps of luma, with 16 bits of fraction.
  int32_t step_red_v, step_green_u, step_green_v, step_blue_u;
  int16_t first_step;  // number of the step that a luma of 0 is
  int16_t step;        // (size of a step - 1) * 2^16
  int16_t floor;       // step 0 is at -floor
};

// The weights of one axis: output i is the sum of `taps` inputs from first[i] on; behind the input's end they are 0.
struct FilterView {
  int in;
  int out;
  int taps;
  int stride;  // of the weights of one output, a multiple of 16; those behind `taps` are 0
  int shift;
  const int32_t* first;
  const int16_t* weights;
};

struct Kernels {
  std::string_view name;

  // Rows of 4:2:x with an even width, luma and chroma as 8 bits; null for the reference: libswscale does it there.
  void (*direct)(const uint8_t* y, const uint8_t* u, const uint8_t* v, int width, const YuvCoefficients& k, Planes out);
  // The same by steps of luma; luma has `extra_bits` more than 8 where it is wider than a byte.
  void (*stepped8)(const uint8_t* y, const uint8_t* u, const uint8_t* v, int width, const YuvCoefficients& k,
                   Planes out);
  void (*stepped16)(const uint16_t* y, int extra_bits, const uint8_t* u, const uint8_t* v, int width,
                    const YuvCoefficients& k, Planes out);
  // A chroma row as 8 bits, the weighted sum of four rows (weights of 12 bits of fraction).
  void (*mix)(const uint16_t* const rows[4], const int16_t weights[4], int extra_bits, int width, uint8_t* out);
  // Rows of 4:4:4.
  void (*full8)(const uint8_t* y, const uint8_t* u, const uint8_t* v, int width, const YuvCoefficients& k, Planes out);
  void (*full16)(const uint16_t* y, const uint16_t* u, const uint16_t* v, int extra_bits, int width,
                 const YuvCoefficients& k, Planes out);

  // Outputs [begin, end) of a filtered row; `in` is the row's pixel number `offset`. Up to `stride` bytes from the
  // first tap on are read.
  void (*narrow)(ConstPlanes in, int offset, const FilterView& filter, int begin, int end, Planes out);
  // The weighted sum of `taps` rows. The rows are readable, the weights are there, up to an even number of taps.
  void (*blend)(const uint8_t* const* rows, const int16_t* weights, int taps, int shift, int width, uint8_t* out);

  // Between RGB RGB ... and planes; no byte behind the row is read or written.
  void (*split)(const uint8_t* rgb, int width, Planes out);
  void (*join)(ConstPlanes in, int width, uint8_t* rgb);
  // 16 x 16 bytes: out[x * out_stride + y] = in[y * in_stride + x].
  void (*transpose)(const uint8_t* in, int64_t in_stride, uint8_t* out, int64_t out_stride);
  void (*reverse)(uint8_t* row, int width);
};

// What this machine can run, the fastest first; the last is "scalar", plain loops that say what is right.
std::span<const Kernels* const> available_kernels();
inline const Kernels& best_kernels() { return *available_kernels().front(); }
// Throws std::invalid_argument if there is none of this name.
const Kernels& kernels_named(std::string_view name);

}  // namespace flashcodec
