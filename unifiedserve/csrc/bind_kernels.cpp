#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "batch.h"
#include "bindings.h"
#include "paged_attention.h"
#include "sequence_attention.h"

namespace py = pybind11;

namespace unified {

namespace {

using Group = std::array<std::int64_t, 3>;

void bound_linear(ThreadPool& pool, const TensorView& x, const WeightTensors& weight, const TensorView& y) {
  with_element_type(x.type(), "x", [&]<class T>() {
    Size rows("rows");
    Size outputs("outputs");
    Size inputs("inputs");
    const Weight<T> typed = weight.as<T>("weight", outputs, inputs);
    const T* const from = x.as<const T>("x", {rows, inputs});
    linear(pool, from, rows.value(), typed, y.as<float>("y", {rows, outputs}), false);
  });
}

Step step_of(const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, Step>, 4> kSteps{
      {{"none", Step::kNone}, {"silu", Step::kSilu}, {"plus", Step::kPlus}, {"times", Step::kTimes}}};
  for (const auto& [known, step] : kSteps) {
    if (known == name) return step;
  }
  throw std::invalid_argument("no step '" + name + "'; there are none, silu, plus and times");
}

void bound_linear_then(ThreadPool& pool, const TensorView& x, const WeightTensors& weight, const std::string& name,
                       const std::optional<TensorView>& other, const TensorView& y) {
  const Step step = step_of(name);
  const bool takes_other = step == Step::kPlus || step == Step::kTimes;
  if (takes_other != other.has_value()) {
    throw std::invalid_argument("step '" + name + "' takes " + (takes_other ? "another tensor" : "no other tensor"));
  }
  with_element_type(x.type(), "x", [&]<class T>() {
    Size rows("rows");
    Size outputs("outputs");
    Size inputs("inputs");
    const Weight<T> typed = weight.as<T>("weight", outputs, inputs);
    const T* const from = x.as<const T>("x", {rows, inputs});
    const T* const second = as_or_null<const T>(other, "other", {rows, outputs});
    linear_then(pool, from, rows.value(), typed, step, second, y.as<T>("y", {rows, outputs}));
  });
}

void check_layer(const KvCache& cache, std::int64_t layer) {
  if (layer < 0 || layer >= cache.layers) throw std::invalid_argument("no layer " + std::to_string(layer));
}

void check_keys(const std::optional<std::int64_t>& keys, const char* name) {
  if (keys && *keys < 1)
    throw std::invalid_argument(std::string("a ") + name + " of " + std::to_string(*keys) + " keys");
}

// The rules without sinks, whose number is that of the heads.
AttentionRules rules_of(float scale, std::optional<std::int64_t> window, std::optional<std::int64_t> chunk,
                        std::optional<float> cap) {
  check_keys(window, "window");
  check_keys(chunk, "chunk");
  if (cap && !(*cap > 0)) throw std::invalid_argument("a cap of " + std::to_string(*cap));
  AttentionRules rules{.scale = scale, .chunk = chunk.value_or(0), .cap = cap.value_or(0)};
  rules.window = window.value_or(rules.window);
  return rules;
}

void bound_attend(ThreadPool& pool, std::int64_t layer, const Batch& batch, const KvCache& cache, const TensorView& q,
                  const TensorView& out, float scale, std::optional<std::int64_t> window,
                  std::optional<std::int64_t> chunk, std::optional<float> cap, const std::optional<TensorView>& sinks) {
  batch.check(cache);
  check_layer(cache, layer);
  AttentionRules rules = rules_of(scale, window, chunk, cap);
  with_element_type(q.type(), "q", [&]<class T>() {
    Size tokens("tokens", batch.tokens());
    Size heads("heads");
    Size head_dim("head_dim", cache.head_dim);
    const T* const queries = q.as<const T>("q", {tokens, heads, head_dim});
    T* const attended = out.as<T>("out", {tokens, heads, head_dim});
    rules.sinks = as_or_null<const float>(sinks, "sinks", {heads});
    PagedAttention<T> attention(pool, heads.value(), cache.kv_heads, cache.head_dim, rules);
    attention.plan(batch);
    attention.run(batch, cache_of<T>(cache), layer, queries, attended);
  });
}

void bound_store_codes(ThreadPool& pool, std::int64_t layer, const Batch& batch, const KvCache& cache,
                       const TensorView& keys, const TensorView& values) {
  batch.check(cache);
  check_layer(cache, layer);
  if (!cache.coded()) throw_wrong_type("cache", name_of(kElementType<std::int8_t>), cache.type);
  with_element_type(keys.type(), "keys", [&]<class T>() {
    Size tokens("tokens", batch.tokens());
    Size kv_heads("kv_heads", cache.kv_heads);
    Size head_dim("head_dim", cache.head_dim);
    const T* const key = keys.as<const T>("keys", {tokens, kv_heads, head_dim});
    const T* const value = values.as<const T>("values", {tokens, kv_heads, head_dim});
    const std::int64_t width = cache.token_stride();
    for_rows(pool, batch.tokens(), width, [&](std::int64_t row, int /*thread*/) {
      const std::int64_t slot = batch.slots[static_cast<std::size_t>(row)];
      cache.store_codes(layer, slot, key + row * width, value + row * width);
    });
  });
}

void bound_attend_sequences(ThreadPool& pool, const TensorView& qkv, const TensorView& cosine, const TensorView& sine,
                            const std::vector<Group>& groups, const TensorView& out, float scale) {
  std::vector<SequenceGroup> typed;
  typed.reserve(groups.size());
  for (const auto& [start, sequences, length] : groups) typed.push_back({start, sequences, length});
  with_element_type(qkv.type(), "qkv", [&]<class T>() {
    Size rows("rows");
    Size kinds("kinds", 3);
    Size heads("heads");
    Size head_dim("head_dim");
    const T* const from = qkv.as<const T>("qkv", {rows, kinds, heads, head_dim});
    Size angles("head_dim / 2", head_dim.value() / 2);
    const auto* const cosines = cosine.as<const float>("cosine", {rows, angles});
    const auto* const sines = sine.as<const float>("sine", {rows, angles});
    attend_sequences<T>(pool, {from, rows.value(), heads.value(), head_dim.value(), cosines, sines, scale}, typed,
                        out.as<T>("out", {rows, heads, head_dim}));
  });
}

void bound_rms_norm(ThreadPool& pool, const TensorView& x, const TensorView& weight, float epsilon,
                    const TensorView& out) {
  with_element_type(x.type(), "x", [&]<class T>() {
    Size rows("rows");
    Size width("width");
    const T* const from = x.as<const T>("x", {rows, width});
    const T* const factors = weight.as<const T>("weight", {width});
    rms_norm(pool, from, rows.value(), width.value(), factors, epsilon, out.as<T>("out", {rows, width}));
  });
}

void bound_likeliest(ThreadPool& pool, const TensorView& logits, const TensorView& out) {
  Size rows("rows");
  Size width("width");
  const auto* const from = logits.as<const float>("logits", {rows, width});
  auto* const to = out.as<std::int64_t>("out", {rows});
  if (width.value() < 1) throw std::invalid_argument("logits: expected some of each row, got none");
  for_rows(pool, rows.value(), width.value(), [&](std::int64_t row, int /*thread*/) {
    to[row] = current_kernels().likeliest(from + row * width.value(), width.value());
  });
}

}  // namespace

void bind_kernels(py::module_& module) {
  module.def("linear", &bound_linear, py::arg("pool"), py::arg("x"), py::arg("weight"), py::arg("y"), Release(),
             "Write y float32 [rows, outputs]: x [rows, inputs] times the transposed weight, plus its bias.");
  module.def(
      "linear_then", &bound_linear_then, py::arg("pool"), py::arg("x"), py::arg("weight"), py::arg("step"),
      py::arg("other").none(true), py::arg("y"), Release(),
      R"(Write y [rows, outputs]: a step of x [rows, inputs] times the transposed weight, plus its bias; rounded once.

The step is "none", "silu", or "plus" or "times" `other` [rows, outputs], which may be y. Raises ValueError for another
step, or if there is an `other` that it does not take.)");
  module.def("attend", &bound_attend, py::arg("pool"), py::arg("layer"), py::arg("batch"), py::arg("cache"),
             py::arg("q"), py::arg("out"), py::arg("scale"), py::arg("window") = py::none(),
             py::arg("chunk") = py::none(), py::arg("cap") = py::none(), py::arg("sinks") = py::none(), Release(),
             R"(Attend causally over one layer's pages of a ragged batch's T tokens; q and out are [T, heads, head_dim].

A token sees the last `window` keys up to its own, by default all; with a `chunk`, those of its own chunk of so many
positions, counted from the sequence's start. Scores are at most `cap`: cap * tanh(score / cap). `sinks` float32 [heads]
are scores that join a head's denominator alone. Raises ValueError if there is no such layer, the window, chunk or cap
is not positive, or the batch does not fit the cache.)");
  module.def("store_codes", &bound_store_codes, py::arg("pool"), py::arg("layer"), py::arg("batch"), py::arg("cache"),
             py::arg("keys"), py::arg("values"), Release(),
             R"(Write codes of a ragged batch's new keys and values [T, kv_heads, head_dim] to a layer's slots.

A head's largest magnitude has the code 127. Raises TypeError for a cache without codes, ValueError if there is no such
layer, or the batch does not fit the cache.)");
  module.def("attend_sequences", &bound_attend_sequences, py::arg("pool"), py::arg("qkv"), py::arg("cosine"),
             py::arg("sine"), py::arg("groups"), py::arg("out"), py::arg("scale"), Release(),
             R"(Attend from all rows of a sequence to all of them.

qkv are queries, keys and values [rows, 3, heads, head_dim] before rotation, out is [rows, heads, head_dim]. cosine and
sine are float32 [rows, head_dim / 2]: an element of a head's first half turns with that of the second half. `groups`
are (first row, number of sequences, rows of each). Raises ValueError for an odd head_dim, or groups outside the rows.)");
  module.def("rms_norm", &bound_rms_norm, py::arg("pool"), py::arg("x"), py::arg("weight"), py::arg("epsilon"),
             py::arg("out"), Release(),
             "Write out: each row of x [rows, width] by its root mean square, times weight [width]; rounded once.");
  module.def("likeliest", &bound_likeliest, py::arg("pool"), py::arg("logits"), py::arg("out"), Release(),
             R"(Write out int64 [rows]: the place of the highest of each row of logits, float32 [rows, width].

Of equal ones it is the first. What is no number is passed over.)");
}

}  // namespace unified
