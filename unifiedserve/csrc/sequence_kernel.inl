// Attention within one sequence, not causal, with the rotary embedding. Each block of keys is packed once for all
// queries of the tile, of which so many go at once that their scores stay in the first cache.
namespace unified {
namespace {

// Calls f(index, count) for vectors that cover [0, n): the last one overlaps the one before, if there is one.
template <class Function>
void for_overlapping(std::int64_t n, Function f) {
  if (n < kWidth) return f(0, n);
  for (std::int64_t i = 0; i + kWidth < n; i += kWidth) f(i, kWidth);
  f(n - kWidth, kWidth);
}

template <class T, class Products = VectorProducts<T>>
class Sequence {
 public:
  explicit Sequence(const SequenceTile<T>& tile)
      : tile_(tile),
        rows_(static_cast<int>(tile.last - tile.first)),
        width_(padded(tile.head_dim)),
        stride_(lane_stride_of<T>(tile.head_dim)),
        rotated_(tile.scratch),
        queries_(rotated_ + kBlockKeys * width_),
        keys_(queries_ + kSequenceRows * width_),
        values_(keys_ + kBlockKeys * width_),
        scores_(values_ + kBlockKeys * width_),
        out_(scores_ + kSequenceBlock * kBlockKeys),
        maximum_(out_ + kSequenceRows * width_),
        sum_(maximum_ + kSequenceRows) {}

  void run() {
    start();
    for (std::int64_t first = 0; first < tile_.length; first += kBlockKeys) {
      pack_block(first);
      for (int row = 0; row < rows_; row += Products::kSequenceRows) {
        attend(row, rows_ - row < Products::kSequenceRows ? rows_ - row : Products::kSequenceRows);
      }
    }
    for (int row = 0; row < rows_; ++row) {
      narrow(out_ + row * width_, 1 / sum_[row], tile_.head_dim, tile_.out + (tile_.first + row) * tile_.out_stride);
    }
  }

 private:
  void start() {
    // Behind the end of a head there are zeros, so that whole vectors can be loaded.
    std::memset(rotated_, 0, static_cast<std::size_t>(kBlockKeys * stride_) * sizeof(float));
    std::memset(out_, 0, static_cast<std::size_t>(rows_ * width_) * sizeof(float));
    for (int row = 0; row < rows_; ++row) {
      maximum_[row] = -__builtin_inff();
      sum_[row] = 0;
    }
    for (int row = 0; row < rows_; row += kBlockKeys) {
      const int count = static_cast<int>(rows_ - row < kBlockKeys ? rows_ - row : kBlockKeys);
      for (int i = 0; i < count; ++i) rotate_row(tile_.first + row + i, 0, rotated(i));
      for (std::int64_t i = 0; i < count * stride_; i += kWidth) {
        store(queries_ + row * stride_ + i, lanes_at<T>(rotated(0), i, count * head_size()));
      }
    }
  }

  // The next head's vector, which is the next that this thread reads of its row.
  void prefetch(const T* vector) const {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    for (std::int64_t i = 0; i < tile_.head_dim; i += kLine) __builtin_prefetch(vector + i);
  }

  // The query (or, at distance `keys`, the key) of a row.
  void rotate_row(std::int64_t row, std::int64_t distance, T* out) const {
    const std::int64_t half = tile_.head_dim / 2;
    const T* const x = tile_.q + row * tile_.row_stride + distance;
    prefetch(x + tile_.head_dim);
    const float* const cosine = tile_.cosine + row * half;
    const float* const sine = tile_.sine + row * half;
    for_overlapping(half, [&](std::int64_t i, std::int64_t count) {
      const Float first = take(x + i, count);
      const Float second = take(x + half + i, count);
      const Float c = take(cosine + i, count);
      const Float s = take(sine + i, count);
      put(out + i, first * c - second * s, count);
      put(out + half + i, second * c + first * s, count);
    });
  }

  void pack_block(std::int64_t first) {
    const std::int64_t left = tile_.length - first;
    count_ = static_cast<int>(left < kBlockKeys ? left : kBlockKeys);
    const T* rows[kBlockKeys];
    for (int i = 0; i < count_; ++i) {
      rotate_row(first + i, tile_.keys, rotated(i));
      rows[i] = rotated(i);
    }
    pack_keys<T>(rows, count_, head_size(), keys_);
    for (int i = 0; i < count_; ++i) {
      rows[i] = tile_.q + (first + i) * tile_.row_stride + tile_.keys;
      prefetch(rows[i] + tile_.keys + tile_.head_dim);
    }
    pack_values<T>(rows, tile_.keys, count_, tile_.head_dim, values_);
    fill_values<T, Products>(count_, width_, values_);
  }

  // Some queries and the block of keys at hand.
  void attend(int row, int rows) {
    const int count = whole_vectors(count_);
    float* const out = out_ + row * width_;
    products_.multiply({queries_ + row * stride_, stride_, keys_, kBlockKeys,
                        Products::whole(lanes_of<T>(tile_.head_dim)), scores_, kBlockKeys, false},
                       rows, count);
    for (int i = 0; i < rows; ++i) {
      float* const scores = scores_ + static_cast<std::int64_t>(i) * kBlockKeys;
      soften_row<T>(scores, count_, count, tile_.scale, NoFactors{},
                    {out + i * width_, width_, maximum_ + row + i, sum_ + row + i});
      fill_weights<T, Products>(count_, scores);
    }
    products_.multiply({scores_, kBlockKeys, values_, width_, Products::whole(lanes_of<T>(count_)), out, width_, true},
                       rows, width_);
  }

  std::int64_t head_size() const { return stride_ * Product<T>::kValues; }
  T* rotated(std::int64_t row) const { return reinterpret_cast<T*>(rotated_) + row * head_size(); }

  const SequenceTile<T>& tile_;
  [[no_unique_address]] Products products_;
  int rows_;
  std::int64_t width_;
  std::int64_t stride_;  // in lanes, of queries and rotated keys
  int count_ = 0;        // of keys in the block
  float* rotated_;       // T [kBlockKeys, head_size()]
  float* queries_;       // [rows, stride]
  float* keys_;          // [stride, kBlockKeys]
  float* values_;        // [lanes_of(kBlockKeys), width]
  float* scores_;        // [kSequenceBlock, kBlockKeys]
  float* out_;           // [rows, width]
  float* maximum_;       // [rows]
  float* sum_;           // [rows]
};

template <class T>
void attend_sequence(const SequenceTile<T>& tile) {
  Sequence<T>(tile).run();
}

}  // namespace
}  // namespace unified
