// Attention with an online softmax (Milakov, Gimelshein, arXiv:1805.02867) over blocks of keys: each block is packed so
// that scores are vectors along keys and outputs are vectors along the head's dimension, and both products are the one
// of multiply.inl.
namespace unified {
namespace {

// Where the keys of a block are; their values lie `tile.values` behind them.
template <class T>
struct Block {
  const T* rows[kBlockKeys];
  int count;
};

// A tile's scratch memory, and the block at hand.
template <class T>
struct Workspace {
  static constexpr int kValues = Product<T>::kValues;

  explicit Workspace(const AttentionTile<T>& tile)
      : rows(tile.tokens * tile.group),
        width(padded(tile.head_dim)),
        lanes((tile.head_dim + kValues - 1) / kValues),
        lane_stride((lanes + kWidth - 1) / kWidth * kWidth),
        queries(tile.scratch),
        keys(queries + rows * width),
        values(keys + kBlockKeys * width),
        scores(values + kBlockKeys * width) {}

  int rows;
  std::int64_t width;
  std::int64_t lanes;  // of a query or key
  std::int64_t lane_stride;
  float* queries;  // [rows, lane_stride]
  float* keys;     // [lane_stride, kBlockKeys]
  float* values;   // [kBlockKeys / kValues, width]
  float* scores;   // [rows, kBlockKeys]
  Block<T> block = {};
};

template <class T>
void pack_queries(const AttentionTile<T>& tile, const Workspace<T>& work) {
  float* out = work.queries;
  for (int token = 0; token < tile.tokens; ++token) {
    for (int head = 0; head < tile.group; ++head, out += work.lane_stride) {
      const T* const q = tile.q + token * tile.q_stride + head * tile.head_dim;
      for (std::int64_t i = 0; i < work.lanes; i += kWidth) store(out + i, lanes_at(q, i, tile.head_dim));
    }
  }
}

// None if `first` is behind the last key.
template <class T>
Block<T> find_keys(const AttentionTile<T>& tile, std::int64_t first) {
  Block<T> block;
  const std::int64_t left = tile.last_key - first;
  block.count = static_cast<int>(left < kBlockKeys ? left : kBlockKeys);
  const std::int32_t* page = tile.pages + first / tile.page_size;
  auto slot = static_cast<int>(first % tile.page_size);
  for (int i = 0; i < block.count; ++i) {
    block.rows[i] = tile.keys + *page * tile.page_stride + slot * tile.token_stride;
    if (++slot == tile.page_size) {
      slot = 0;
      ++page;
    }
  }
  return block;
}

// Pages are scattered and seen once a step: waiting for each row would take longer than all the rest.
template <class T>
void prefetch(const Block<T>& block, std::int64_t offset, std::int64_t head_dim) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (int i = 0; i < block.count; ++i) {
    for (std::int64_t at = 0; at < head_dim; at += kLine) __builtin_prefetch(block.rows[i] + offset + at);
  }
}

template <class T>
void pack_keys(const AttentionTile<T>& tile, const Workspace<T>& work) {
  for (int key = 0; key < work.block.count; key += kWidth) {
    for (std::int64_t lane = 0; lane < work.lanes; lane += kWidth) {
      Float square[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) {
        square[i] = key + i < work.block.count ? lanes_at(work.block.rows[key + i], lane, tile.head_dim) : Float{};
      }
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) store(work.keys + (lane + i) * kBlockKeys + key, square[i]);
    }
  }
}

// Values of as many keys as share a lane, elements [i, i + kWidth).
template <class T>
Float value_lanes(const AttentionTile<T>& tile, const Workspace<T>& work, int key, std::int64_t i) {
  const std::int64_t rest = tile.head_dim - i;
  const auto element = [&](int number) {
    const T* const from = work.block.rows[number] + tile.values + i;
    return rest >= kWidth ? load(from) : load(from, rest);
  };
  if constexpr (Product<T>::kValues == 1) {
    return element(key);
  } else {
    const Word low = as_word(element(key)) >> 16;
    return as_float(key + 1 < work.block.count ? low | as_word(element(key + 1)) : low);
  }
}

template <class T>
void pack_values(const AttentionTile<T>& tile, const Workspace<T>& work) {
  float* out = work.values;
  for (int key = 0; key < work.block.count; key += Product<T>::kValues, out += work.width) {
    std::int64_t i = 0;
    for (; i < tile.head_dim; i += kWidth) store(out + i, value_lanes(tile, work, key, i));
    for (; i < work.width; i += kWidth) store(out + i, Float{});
  }
}

// Scores of a row to weights, as lanes, in place; returns their sum.
template <class T>
float weigh(float* scores, int count, float maximum) {
  Float total = {};
  for (int i = 0; i < count; i += kWidth) {
    const Float weight = exponential(load(scores + i) - maximum);
    total += weight;
    if constexpr (Product<T>::kValues == 1) {
      store(scores + i, weight);
    } else {
      store(reinterpret_cast<T*>(scores) + i, weight);  // behind the scores that are still to be read
    }
  }
  return sum(total);
}

// Scales the scores of the first `visible` keys, hides the others up to `count`; returns the highest.
inline float scale_and_mask(float* scores, std::int64_t visible, int count, float scale) {
  Int lane;
  for (int i = 0; i < kWidth; ++i) lane[i] = i;
  Float high = splat(-__builtin_inff());
  for (int i = 0; i < count; i += kWidth) {
    Float value = load(scores + i) * scale;
    if (i + kWidth > visible) value = lane < static_cast<std::int32_t>(visible - i) ? value : splat(-__builtin_inff());
    high = greater(value, high);
    store(scores + i, value);
  }
  return maximum(high);
}

inline void rescale(float* row, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; i += kWidth) store(row + i, load(row + i) * factor);
}

template <class T>
void soften(const AttentionTile<T>& tile, std::int64_t first_key, const Workspace<T>& work) {
  const int count = (work.block.count + kWidth - 1) / kWidth * kWidth;
  for (int row = 0; row < work.rows; ++row) {
    float* const scores = work.scores + static_cast<std::int64_t>(row) * kBlockKeys;
    const std::int64_t seen = tile.first_position + row / tile.group + 1 - first_key;
    const std::int64_t visible = seen < work.block.count ? seen : work.block.count;
    if (visible <= 0) {
      std::memset(scores, 0, kBlockKeys * sizeof(float));
      continue;
    }
    const float before = tile.maximum[row];
    const float high = scale_and_mask(scores, visible, count, tile.scale);
    if (high > before) {
      const float factor = sum(exponential(splat(before - high))) / kWidth;
      rescale(tile.out + row * work.width, work.width, factor);
      tile.sum[row] *= factor;
      tile.maximum[row] = high;
    }
    tile.sum[row] += weigh<T>(scores, count, tile.maximum[row]);
  }
}

template <class T>
void attend(const AttentionTile<T>& tile) {
  Workspace<T> work(tile);
  for (int row = 0; row < work.rows; ++row) {
    tile.maximum[row] = -__builtin_inff();
    tile.sum[row] = 0;
  }
  std::memset(tile.out, 0, static_cast<std::size_t>(work.rows * work.width) * sizeof(float));
  pack_queries(tile, work);
  Block<T> next = find_keys(tile, tile.first_key);
  prefetch(next, 0, tile.head_dim);
  for (std::int64_t first = tile.first_key; first < tile.last_key; first += kBlockKeys) {
    work.block = next;
    prefetch(work.block, tile.values, tile.head_dim);
    pack_keys(tile, work);
    multiply<T>({work.queries, work.lane_stride, work.keys, kBlockKeys, work.lanes, work.scores, kBlockKeys, false},
                work.rows, (work.block.count + kWidth - 1) / kWidth * kWidth);
    next = find_keys(tile, first + kBlockKeys);
    prefetch(next, 0, tile.head_dim);
    soften(tile, first, work);
    pack_values(tile, work);
    const std::int64_t depth = (work.block.count + Product<T>::kValues - 1) / Product<T>::kValues;
    multiply<T>({work.scores, kBlockKeys, work.values, work.width, depth, tile.out, work.width, true}, work.rows,
                work.width);
  }
}

}  // namespace
}  // namespace unified
