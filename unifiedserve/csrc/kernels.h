// The inner loops of a language model's step, compiled for several instruction sets.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "bfloat16.h"
#include "float16.h"

namespace unified {

// Weights [outputs, inputs] lie in panels of so many outputs, [inputs / values, kPanelOutputs, values]: side by side
// are lanes of 32 bits of all the panel's outputs, with 1 value of float32, 2 of bfloat16, or 4 or 8 codes. What lacks
// of a last panel is zero.
constexpr std::int64_t kPanelOutputs = 16;

// x [rows, inputs] and panels of weights, of T or bfloat16; y[r * y_stride + o] is their product plus bias[o] (if there
// is one), added to what y holds if `accumulate`.
template <class T>
struct LinearTile {
  const T* x;
  std::int64_t rows;
  const float* panels;  // lanes
  const T* bias;
  std::int64_t outputs;
  std::int64_t inputs;
  float* y;
  std::int64_t y_stride;
  bool accumulate;
};

// Rows of `inputs` codes of 8 bits: `group` of them share a scale.
struct CodedRows {
  std::int8_t* codes;  // [rows, inputs]
  float* scales;       // [rows, inputs / group]
  float* sums;         // of a group's codes, [rows, inputs / group], times the `zero`
  std::int64_t inputs;
  std::int64_t group;  // 16, 32, 64, 128 or 256; or all inputs, for weights of 8 bits
  // kPanelOutputs times that of all weights. Null: groups have zeros of their own, and sums are as they are.
  const Float16* zero;
};

// All inputs can be a group if they are a multiple of this,
constexpr std::int64_t kSingleGroupUnit = 64;
// and at most so many, whose products' sums stay below 2**31.
constexpr std::int64_t kMostInputsOfGroup = 65'536;

// Zeros of codes, kPanelOutputs for each panel and group, or the same ones for all of them.
struct Zeros {
  const Float16* first = nullptr;
  std::int64_t step = 0;  // from a panel's group to its next one: kPanelOutputs, or 0

  const Float16* at(std::int64_t group) const { return first + group * step; }
  Zeros behind(std::int64_t groups) const { return {at(groups), step}; }
};

// The same with codes of the weights: a weight is (code - zero) * scale. A zero need not be whole.
template <class T>
struct CodedTile {
  CodedRows x;
  std::int64_t rows;
  const std::uint8_t* panels;
  const Float16* scales;  // [panels, inputs / group, kPanelOutputs]
  Zeros zeros;            // likewise
  const T* bias;
  std::int64_t outputs;
  float* y;
  std::int64_t y_stride;
  bool accumulate;
};

constexpr std::int64_t kBlockKeys = 64;

// Attention's vectors are padded to this many elements.
constexpr std::int64_t kHeadPadding = 16;
constexpr std::int64_t padded(std::int64_t head_dim) {
  return (head_dim + kHeadPadding - 1) / kHeadPadding * kHeadPadding;
}

// Whether keys and values are stored as codes of 8 bits: times their scale, a row's own, they are what was stored.
template <class Stored>
inline constexpr bool kCoded = std::is_same_v<Stored, std::int8_t>;

// Consecutive tokens of one sequence, with the query heads that share a key/value head, over a range of its keys.
// Row (t, g) is token t's head g of the group.
template <class T, class Stored>
struct AttentionTile {
  const T* q;  // of row (0, 0); a token's heads lie back to back
  std::int64_t q_stride;
  int tokens;
  int group;
  std::int64_t head_dim;

  const Stored* keys;   // of token 0 of page 0, this head
  std::int64_t values;  // distance from a key to its value
  std::int64_t page_stride;
  std::int64_t token_stride;
  const float* scales;        // of codes, likewise; those of a page's tokens lie side by side
  std::int64_t value_scales;  // distance from a key's to its value's
  std::int64_t scale_stride;  // from a page's to the next one's
  const std::int32_t* pages;
  int page_size;
  std::int64_t first_key;
  std::int64_t last_key;
  std::int64_t first_position;  // token t sees the last `window` keys up to first_position + t
  std::int64_t window;
  std::int64_t chunk;  // of those, keys of its own chunk of so many positions; 0: all
  float scale;
  float cap;  // of scores: cap * tanh(score / cap); 0: none

  float* scratch;  // attention_scratch() floats
  float* out;      // [rows, padded(head_dim)], with room for padded rows; not yet divided by `sum`
  float* maximum;  // [rows]
  float* sum;      // [rows]
};

// Registers compute so many rows at once: behind a tile's rows there is room up to the next multiple.
constexpr std::int64_t kRowPadding = 16;
constexpr std::int64_t padded_rows(std::int64_t rows) { return (rows + kRowPadding - 1) / kRowPadding * kRowPadding; }

// Floats that a tile of `rows`, padded, needs: queries, keys, values, scores.
constexpr std::int64_t attention_scratch(std::int64_t rows, std::int64_t head_dim) {
  return (rows + 2 * kBlockKeys) * padded(head_dim) + rows * kBlockKeys;
}

constexpr std::int64_t kSequenceRows = 528;  // queries of a SequenceTile, at most
constexpr std::int64_t kSequenceBlock = 66;  // of them at once

// Queries of one head and sequence, all of which see all of its keys. A row has a query, a key and a value of every
// head; the rotary embedding, of a head's first half against its second, is applied on the way.
template <class T>
struct SequenceTile {
  const T* q;               // of the sequence's first row, this head
  std::int64_t keys;        // distance from a query to its key, and from there to its value
  std::int64_t row_stride;  // from a row to the next
  std::int64_t length;      // of the sequence
  std::int64_t first;       // of the queries
  std::int64_t last;
  std::int64_t head_dim;  // even
  const float* cosine;    // [length, head_dim / 2]
  const float* sine;
  float scale;

  float* scratch;  // sequence_scratch() floats
  T* out;          // of the sequence's first row, this head
  std::int64_t out_stride;
};

// Floats that a tile needs: a rotated block of keys; queries, keys, values, scores, results.
constexpr std::int64_t sequence_scratch(std::int64_t head_dim) {
  return (2 * kSequenceRows + 3 * kBlockKeys) * padded(head_dim) + kSequenceBlock * kBlockKeys + 2 * kSequenceRows;
}

// What a product's sums become: themselves, SiLU of them, or their sum or product with another element.
enum class Step { kNone, kSilu, kPlus, kTimes };

// T is the type of weights, of a cache without codes and of what goes into matrix products; the rest is float32.
template <class T>
struct Kernels {
  void (*linear)(const LinearTile<T>& tile);
  // Whether that goes through the inputs in parts, so that rows and outputs of a tile may be many.
  bool linear_in_parts = false;
  // The same with weights of bfloat16 where T is float: to the bit the sums of those weights as floats.
  void (*linear_narrow)(const LinearTile<T>& tile) = nullptr;
  void (*linear_int8)(const CodedTile<T>& tile) = nullptr;
  void (*linear_int4)(const CodedTile<T>& tile) = nullptr;
  // Whether these go through that many rows and their outputs in parts, so that a tile may have many; null: never.
  bool (*codes_in_parts)(std::int64_t rows, std::int64_t group) = nullptr;
  // Codes of row x to row `row`.
  void (*encode)(const T* x, const CodedRows& out, std::int64_t row);
  // The first keys of the `following` tile are fetched meanwhile.
  void (*attend)(const AttentionTile<T, T>& tile, const AttentionTile<T, T>& following);
  void (*attend_codes)(const AttentionTile<T, std::int8_t>& tile, const AttentionTile<T, std::int8_t>& following);
  void (*attend_sequence)(const SequenceTile<T>& tile);
  // out = x / rms(x) * weight
  void (*norm)(const float* x, std::int64_t n, const T* weight, float epsilon, T* out);
  void (*norm_row)(const T* x, std::int64_t n, const T* weight, float epsilon, T* out);
  void (*norm_in_place)(float* x, std::int64_t n, const T* weight, float epsilon);
  // Rotary embedding of a head, which rotates its first half against its second.
  void (*rotate)(const float* x, const float* cosine, const float* sine, std::int64_t n, T* out);
  // out = silu(gate) * up
  void (*gate)(const float* gate, const float* up, std::int64_t n, T* out);
  void (*widen)(const T* x, std::int64_t n, float* out);
  // out = step(x), with an element of `other` where the step takes one
  void (*finish)(const float* x, const T* other, Step step, std::int64_t n, T* out);
  // out = x * scale, rounded to nearest even
  void (*narrow)(const float* x, float scale, std::int64_t n, T* out);
  // Codes of x; returns their scale, which is positive: the largest magnitude has the code 127 or -127.
  float (*quantize)(const T* x, std::int64_t n, std::int8_t* codes);
};

// The place of the highest of n floats, fewer than 2**31: of equal ones the first. What is no number is passed over.
using Likeliest = std::int64_t (*)(const float* x, std::int64_t n);

struct KernelSet {
  std::string_view name;
  Kernels<float> float32;
  Kernels<BFloat16> bfloat16;
  Likeliest likeliest = nullptr;
};

}  // namespace unified
