// Attention over keys in pages, block by block.
namespace unified {
namespace {

// Where the keys of a block are, and of codes the scales; what belongs to their values lies at a distance.
template <class Stored>
struct Block {
  const Stored* rows[kBlockKeys];
  const float* scales[kCoded<Stored> ? kBlockKeys : 1];
  int count;
};

// A tile's scratch memory, and the block at hand.
template <class T, class Stored>
struct Workspace {
  explicit Workspace(const AttentionTile<T, Stored>& tile)
      : rows(tile.tokens * tile.group),
        width(padded(tile.head_dim)),
        lanes(lanes_of<T>(tile.head_dim)),
        lane_stride(lane_stride_of<T>(tile.head_dim)),
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
  float* values;   // [lanes_of(kBlockKeys), width]
  float* scores;   // [rows, kBlockKeys]
  Block<Stored> block = {};
};

template <class T, class Stored>
void pack_queries(const AttentionTile<T, Stored>& tile, const Workspace<T, Stored>& work) {
  float* out = work.queries;
  for (int token = 0; token < tile.tokens; ++token) {
    for (int head = 0; head < tile.group; ++head, out += work.lane_stride) {
      const T* const q = tile.q + token * tile.q_stride + head * tile.head_dim;
      for (std::int64_t i = 0; i < work.lanes; i += kWidth) store(out + i, lanes_at<T>(q, i, tile.head_dim));
    }
  }
}

template <class T, class Stored>
Block<Stored> find_keys(const AttentionTile<T, Stored>& tile, std::int64_t first) {
  Block<Stored> block;
  const std::int64_t left = tile.last_key - first;
  block.count = static_cast<int>(left < kBlockKeys ? left : kBlockKeys);
  const std::int32_t* page = tile.pages + first / tile.page_size;
  auto slot = static_cast<int>(first % tile.page_size);
  for (int i = 0; i < block.count; ++i) {
    block.rows[i] = tile.keys + *page * tile.page_stride + slot * tile.token_stride;
    if constexpr (kCoded<Stored>) block.scales[i] = tile.scales + *page * tile.scale_stride + slot;
    if (++slot == tile.page_size) {
      slot = 0;
      ++page;
    }
  }
  return block;
}

// Fetches keys or values of a block, one by one while those of the block before are multiplied: pages are scattered, so
// that waiting for each row would take longer than all the rest. Into the second-level cache, for which processors have
// many more lines on their way than for the first.
template <class Stored>
struct BlockFetch {
  const Block<Stored>& block;
  std::int64_t head_dim;
  std::int64_t offset;  // from a key
  std::int64_t scale_offset;
  int done = 0;

  void lane() {
    constexpr std::int64_t kLine = 64 / sizeof(Stored);
    if (done >= block.count) return;
    for (std::int64_t at = 0; at < head_dim; at += kLine) __builtin_prefetch(block.rows[done] + offset + at, 0, 2);
    if constexpr (kCoded<Stored>) __builtin_prefetch(block.scales[done] + scale_offset, 0, 2);
    ++done;
  }

  void all() {
    while (done < block.count) lane();
  }
};

template <class T, class Stored>
auto factors_of(const AttentionTile<T, Stored>& tile, const Block<Stored>& block) {
  if constexpr (kCoded<Stored>) {
    CodeScales scales = {};
    for (int i = 0; i < block.count; ++i) {
      scales.keys[i] = block.scales[i][0];
      scales.values[i] = block.scales[i][tile.value_scales];
    }
    return scales;
  } else {
    return NoFactors{};
  }
}

// Returns the first key that a token at a position sees.
template <class T, class Stored>
std::int64_t first_seen(const AttentionTile<T, Stored>& tile, std::int64_t position) {
  const std::int64_t by_window = position + 1 - tile.window;
  if (tile.chunk == 0) return by_window;
  const std::int64_t by_chunk = position / tile.chunk * tile.chunk;
  return by_window > by_chunk ? by_window : by_chunk;
}

// Factors of a block whose scores are what they are to be.
template <class Factors>
struct WeightFactors {
  const Factors& factors;

  Float to_scores(Float scores, int /*key*/) const { return scores; }
  Float to_weights(Float weights, int key) const { return factors.to_weights(weights, key); }
};

template <class T, class Stored, class Factors>
void cap_scores(const AttentionTile<T, Stored>& tile, const Workspace<T, Stored>& work, const Factors& factors) {
  for (int row = 0; row < work.rows; ++row) {
    float* const scores = work.scores + static_cast<std::int64_t>(row) * kBlockKeys;
    for (int key = 0; key < work.block.count; key += kWidth) {
      const Float score = factors.to_scores(load(scores + key) * tile.scale, key);
      store(scores + key, hyperbolic_tangent(score * (1 / tile.cap)) * tile.cap);
    }
  }
}

template <class T, class Stored, class Factors>
void soften_rows(const AttentionTile<T, Stored>& tile, std::int64_t first_key, const Workspace<T, Stored>& work,
                 float scale, const Factors& factors) {
  const int count = whole_vectors(work.block.count);
  for (int row = 0; row < work.rows; ++row) {
    float* const scores = work.scores + static_cast<std::int64_t>(row) * kBlockKeys;
    const std::int64_t position = tile.first_position + row / tile.group;
    const std::int64_t seen = position + 1 - first_key;
    const std::int64_t visible = seen < work.block.count ? seen : work.block.count;
    const std::int64_t hidden = first_seen(tile, position) - first_key;
    if (visible <= 0 || visible <= hidden) {
      std::memset(scores, 0, kBlockKeys * sizeof(float));
      continue;
    }
    for (std::int64_t key = 0; key < hidden; ++key) scores[key] = -__builtin_inff();
    soften_row<T>(scores, visible, count, scale, factors,
                  {tile.out + row * work.width, work.width, tile.maximum + row, tile.sum + row});
  }
}

template <class T, class Stored>
void soften(const AttentionTile<T, Stored>& tile, std::int64_t first_key, const Workspace<T, Stored>& work) {
  const auto factors = factors_of(tile, work.block);
  if (tile.cap == 0) return soften_rows(tile, first_key, work, tile.scale, factors);
  cap_scores(tile, work, factors);
  soften_rows(tile, first_key, work, 1, WeightFactors<decltype(factors)>{factors});
}

template <class T, class Stored, class Products = VectorProducts<T>>
void attend(const AttentionTile<T, Stored>& tile, const AttentionTile<T, Stored>& following) {
  const Products products;
  Workspace<T, Stored> work(tile);
  for (int row = 0; row < work.rows; ++row) {
    tile.maximum[row] = -__builtin_inff();
    tile.sum[row] = 0;
  }
  std::memset(tile.out, 0, static_cast<std::size_t>(work.rows * work.width) * sizeof(float));
  pack_queries(tile, work);
  Block<Stored> next = find_keys(tile, tile.first_key);
  BlockFetch<Stored> keys{next, tile.head_dim, 0, 0};
  BlockFetch<Stored> values{next, tile.head_dim, tile.values, tile.value_scales};
  keys.all();  // which are there already if another tile came before
  values.all();
  for (std::int64_t first = tile.first_key; first < tile.last_key; first += kBlockKeys) {
    const Block<Stored>& block = work.block = next;
    const bool last = first + kBlockKeys >= tile.last_key;
    next = last ? find_keys(following, following.first_key) : find_keys(tile, first + kBlockKeys);
    keys.done = values.done = 0;
    pack_keys<T>(block.rows, block.count, tile.head_dim, work.keys);
    products.multiply({work.queries, work.lane_stride, work.keys, kBlockKeys, Products::whole(work.lanes), work.scores,
                       kBlockKeys, false},
                      work.rows, whole_vectors(block.count), keys);
    keys.all();
    soften(tile, first, work);
    for (int row = 0; row < work.rows; ++row) fill_weights<T, Products>(block.count, work.scores + row * kBlockKeys);
    pack_values<T>(block.rows, tile.values, block.count, tile.head_dim, work.values);
    fill_values<T, Products>(block.count, work.width, work.values);
    products.multiply({work.scores, kBlockKeys, work.values, work.width, Products::whole(lanes_of<T>(block.count)),
                       tile.out, work.width, true},
                      work.rows, work.width, values);
    values.all();
  }
}

}  // namespace
}  // namespace unified
