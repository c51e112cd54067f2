// What attention does with a block of up to kBlockKeys keys: they are packed so that scores are vectors along keys and
// outputs are vectors along the head's dimension, and both products are the one of multiply.inl. The softmax is online
// (Milakov, Gimelshein, arXiv:1805.02867).
namespace unified {
namespace {

// Lanes of a vector of `head_dim` elements, and the distance between such vectors.
template <class T>
constexpr std::int64_t lanes_of(std::int64_t head_dim) {
  return (head_dim + Product<T>::kValues - 1) / Product<T>::kValues;
}
template <class T>
constexpr std::int64_t lane_stride_of(std::int64_t head_dim) {
  return (lanes_of<T>(head_dim) + kWidth - 1) / kWidth * kWidth;
}

inline int whole_vectors(int count) { return static_cast<int>((count + kWidth - 1) / kWidth * kWidth); }

// Products of blocks by vectors.
template <class T>
struct VectorProducts {
  static constexpr int kSequenceRows = kSequenceBlock;  // of a sequence at once: their scores stay in the first cache
  // Lanes that are multiplied for so many; those behind them are zeros.
  static constexpr std::int64_t whole(std::int64_t lanes) { return lanes; }

  // What `fetch` fetches may come meanwhile.
  template <class Fetch = const NoFetch>
  void multiply(const Multiplication& m, int rows, std::int64_t columns, Fetch& fetch = NoFetch{}) const {
    unified::multiply<T>(m, rows, columns, fetch);
  }
};

inline void fill_zeros(float* from, std::int64_t count) {
  if (count > 0) std::memset(from, 0, static_cast<std::size_t>(count) * sizeof(float));
}

// Vectors of n elements each to lanes [lane_stride_of(n), kBlockKeys].
template <class T, class Stored>
void pack_keys(const Stored* const* keys, int count, std::int64_t n, float* out) {
  const std::int64_t lanes = lanes_of<T>(n);
  for (int key = 0; key < count; key += kWidth) {
    for (std::int64_t lane = 0; lane < lanes; lane += kWidth) {
      Float square[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) square[i] = key + i < count ? lanes_at<T>(keys[key + i], lane, n) : Float{};
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) store(out + (lane + i) * kBlockKeys + key, square[i]);
    }
  }
}

// Elements [i, i + kWidth) of as many of `count` values as share a lane; a value lies `distance` behind its key.
template <class T, class Stored>
Float value_lanes(const Stored* const* keys, std::int64_t distance, int count, std::int64_t n, std::int64_t i) {
  const auto element = [&](int number) {
    const Stored* const from = keys[number] + distance + i;
    return n - i >= kWidth ? load(from) : load(from, n - i);
  };
  if constexpr (Product<T>::kValues == 1) {
    return element(0);
  } else {
    const Word low = as_word(element(0)) >> 16;
    return as_float(count > 1 ? low | as_word(element(1)) : low);
  }
}

// Values of n elements each to lanes [lanes_of(count), padded(n)].
template <class T, class Stored>
void pack_values(const Stored* const* keys, std::int64_t distance, int count, std::int64_t n, float* out) {
  for (int key = 0; key < count; key += Product<T>::kValues, out += padded(n)) {
    std::int64_t i = 0;
    for (; i < n; i += kWidth) store(out + i, value_lanes<T>(keys + key, distance, count - key, n, i));
    for (; i < padded(n); i += kWidth) store(out + i, Float{});
  }
}

// What a block's scores and weights are multiplied by, key by key: nothing, or scales of codes.
struct NoFactors {
  Float to_scores(Float scores, int /*key*/) const { return scores; }
  Float to_weights(Float weights, int /*key*/) const { return weights; }
};
struct CodeScales {
  float keys[kBlockKeys];  // positive: some scores are -inf
  float values[kBlockKeys];

  Float to_scores(Float scores, int key) const { return scores * load(keys + key); }
  Float to_weights(Float weights, int key) const { return weights * load(values + key); }
};

// e^x, as exact as what weights are multiplied as.
template <class T>
Float attention_weight(Float x) {
  return Product<T>::kValues == 1 ? exponential(x) : rough_exponential(x);
}

// The first elements of a row of scores, of which the last may be hidden.
template <int kCount>
struct Scores {
  Float values[kCount / kWidth];

  template <class Factors>
  Scores(const float* scores, float scale, const Factors& factors) {
#pragma GCC unroll 16
    for (int i = 0; i < kCount / kWidth; ++i) {
      values[i] = factors.to_scores(load(scores + i * kWidth) * scale, i * kWidth);
    }
  }

  void hide_from(std::int64_t visible) {
    Int lane;
    for (int i = 0; i < kWidth; ++i) lane[i] = i;
#pragma GCC unroll 16
    for (int i = 0; i < kCount / kWidth; ++i) {
      values[i] = lane + static_cast<std::int32_t>(i * kWidth) < static_cast<std::int32_t>(visible)
                      ? values[i]
                      : splat(-__builtin_inff());
    }
  }

  float highest() const {
    Float high = values[0];
#pragma GCC unroll 16
    for (int i = 1; i < kCount / kWidth; ++i) high = greater(values[i], high);
    return maximum(high);
  }

  // Writes weights, multiplied and as lanes; returns the sum of the plain ones.
  template <class T, class Factors>
  float weigh(float high, const Factors& factors, float* out) const {
    Float total = {};
#pragma GCC unroll 16
    for (int i = 0; i < kCount / kWidth; ++i) {
      const Float weight = attention_weight<T>(values[i] - high);
      total += weight;
      const Float factor = factors.to_weights(weight, i * kWidth);
      if constexpr (Product<T>::kValues == 1) {
        store(out + i * kWidth, factor);
      } else {
        store(reinterpret_cast<T*>(out) + i * kWidth, factor);
      }
    }
    return sum(total);
  }
};

inline void rescale(float* row, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; i += kWidth) store(row + i, load(row + i) * factor);
}

// A row's result so far.
struct RowState {
  float* out;  // [width], not yet divided by `sum`
  std::int64_t width;
  float* maximum;
  float* sum;
};

template <class T, int kCount, class Factors>
void soften_scores(float* scores, std::int64_t visible, float scale, const Factors& factors, const RowState& row) {
  Scores<kCount> weights(scores, scale, factors);
  if (visible < kCount) weights.hide_from(visible);
  const float before = *row.maximum;
  const float high = weights.highest();
  if (high > before) {
    *row.maximum = high;
    if (before > -__builtin_inff()) {
      const float factor = exponential(splat(before - high))[0];
      rescale(row.out, row.width, factor);
      *row.sum *= factor;
    }
  }
  *row.sum += weights.template weigh<T>(*row.maximum, factors, scores);
}

// Products of a row with a block's keys, `visible` of them (not 0), to weights of `count`, whole vectors, and its state
// as these need it.
template <class T, int kCount = kBlockKeys, class Factors>
void soften_row(float* scores, std::int64_t visible, int count, float scale, const Factors& factors,
                const RowState& row) {
  if constexpr (kCount > kWidth) {
    if (count < kCount) return soften_row<T, kCount - kWidth>(scores, visible, count, scale, factors, row);
  }
  soften_scores<T, kCount>(scores, visible, scale, factors, row);
}

// Zeros behind a block's values, and behind a row's weights, up to the lanes that are multiplied.
template <class T, class Products>
void fill_values(int count, std::int64_t width, float* values) {
  const std::int64_t lanes = lanes_of<T>(count);
  fill_zeros(values + lanes * width, (Products::whole(lanes) - lanes) * width);
}
template <class T, class Products>
void fill_weights(int count, float* weights) {
  const std::int64_t weighed = whole_vectors(count) / Product<T>::kValues;  // lanes
  fill_zeros(weights + weighed, Products::whole(lanes_of<T>(count)) - weighed);
}

}  // namespace
}  // namespace unified
