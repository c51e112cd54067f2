// The kernels in their plainest form, which the others are tested against. Colours are left to libswscale.

inline uint8_t clip(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

uint8_t weighted_sum(const uint8_t* pixels, const FilterView& filter, int x) {
  const int taps = std::min(filter.taps, filter.in - filter.first[x]);
  int sum = 1 << (filter.shift - 1);
  for (int j = 0; j < taps; ++j) sum += pixels[j] * filter.weights[static_cast<int64_t>(x) * filter.stride + j];
  return clip(sum >> filter.shift);
}

void narrow(ConstPlanes in, int offset, const FilterView& filter, int begin, int end, Planes out) {
  for (int x = begin; x < end; ++x) {
    const int first = filter.first[x] - offset;
    out.red[x - begin] = weighted_sum(in.red + first, filter, x);
    out.green[x - begin] = weighted_sum(in.green + first, filter, x);
    out.blue[x - begin] = weighted_sum(in.blue + first, filter, x);
  }
}

void blend(const uint8_t* const* rows, const int16_t* weights, int taps, int shift, int width, uint8_t* out) {
  for (int x = 0; x < width; ++x) {
    int sum = 1 << (shift - 1);
    for (int j = 0; j < taps; ++j) sum += rows[j][x] * weights[j];
    out[x] = clip(sum >> shift);
  }
}

void split(const uint8_t* rgb, int width, Planes out) {
  for (int64_t x = 0; x < width; ++x) {
    out.red[x] = rgb[3 * x];
    out.green[x] = rgb[3 * x + 1];
    out.blue[x] = rgb[3 * x + 2];
  }
}

void join(ConstPlanes in, int width, uint8_t* rgb) {
  for (int64_t x = 0; x < width; ++x) {
    rgb[3 * x] = in.red[x];
    rgb[3 * x + 1] = in.green[x];
    rgb[3 * x + 2] = in.blue[x];
  }
}

void transpose(const uint8_t* in, int64_t in_stride, uint8_t* out, int64_t out_stride) {
  for (int64_t x = 0; x < 16; ++x) {
    for (int64_t y = 0; y < 16; ++y) out[x * out_stride + y] = in[y * in_stride + x];
  }
}

void reverse(uint8_t* row, int width) { std::reverse(row, row + width); }

constexpr Kernels kKernels{"scalar", nullptr, nullptr, nullptr, nullptr,   nullptr, nullptr,
                           narrow,   blend,   split,   join,    transpose, reverse};
