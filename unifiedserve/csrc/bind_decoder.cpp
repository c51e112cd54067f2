#include <pybind11/typing.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "arguments.h"
#include "bindings.h"
#include "decoder.h"

namespace py = pybind11;

namespace unified {

namespace {

struct LayerTensors {
  TensorView input_norm;
  WeightTensors qkv;
  std::optional<TensorView> query_norm;
  std::optional<TensorView> key_norm;
  WeightTensors output;
  TensorView attention_norm;
  WeightTensors gate_up;
  WeightTensors down;

  template <class T>
  DecoderLayer<T> as(const std::string& name, const DecoderShape& shape) const {
    Size hidden("hidden", shape.hidden);
    Size head_dim("head_dim", shape.head_dim);
    Size qkv_width("(heads + 2 kv_heads) head_dim", shape.qkv_width());
    Size attended("heads head_dim", shape.heads * shape.head_dim);
    Size gated("intermediate", shape.intermediate);
    Size gate_up_width("2 intermediate", 2 * shape.intermediate);
    return {input_norm.as<const T>(name + ".input_norm", {hidden}),
            qkv.as<T>(name + ".qkv", qkv_width, hidden),
            as_or_null<const T>(query_norm, name + ".query_norm", {head_dim}),
            as_or_null<const T>(key_norm, name + ".key_norm", {head_dim}),
            output.as<T>(name + ".output", hidden, attended),
            attention_norm.as<const T>(name + ".attention_norm", {hidden}),
            gate_up.as<T>(name + ".gate_up", gate_up_width, hidden),
            down.as<T>(name + ".down", hidden, gated)};
  }
};

template <class T>
std::vector<DecoderLayer<T>> layers_of(const std::vector<LayerTensors>& layers, const DecoderShape& shape) {
  std::vector<DecoderLayer<T>> typed;
  typed.reserve(layers.size());
  for (const LayerTensors& layer : layers) {
    typed.push_back(layer.as<T>("layers[" + std::to_string(typed.size()) + "]", shape));
  }
  return typed;
}

// A decoder of either element type, whose calls check their tensors.
class BoundDecoder {
 public:
  BoundDecoder(ThreadPool& pool, const DecoderShape& shape, const std::vector<LayerTensors>& layers,
               const TensorView& final_norm)
      : shape_(shape), layers_(layers.size()), decoder_(decoder_of(pool, shape, layers, final_norm)) {}

  void step(const TensorView& embeds, const TensorView& cosine, const TensorView& sine, const Batch& batch,
            const KvCache& cache, const TensorView& hidden) {
    run([&]<class T>(Decoder<T>& decoder) {
      Size tokens("tokens", batch.tokens());
      Size wanted("wanted", batch.wanted_tokens());
      Size width("hidden", shape_.hidden);
      Size head_dim("head_dim", shape_.head_dim);
      decoder.step(embeds.as<const T>("embeds", {tokens, width}), cosine.as<const float>("cosine", {tokens, head_dim}),
                   sine.as<const float>("sine", {tokens, head_dim}), batch, cache_of<T>(cache),
                   hidden.as<T>("hidden", {wanted, width}));
    });
  }

  void plan(const Batch& batch, const KvCache& cache) {
    run([&]<class T>(Decoder<T>& decoder) { decoder.plan(batch, cache_of<T>(cache)); });
  }

  void norm(const TensorView& residual, const std::optional<TensorView>& delta, const TensorView& weight,
            const TensorView& out) {
    run([&]<class T>(Decoder<T>& decoder) {
      Size rows("rows");
      Size width("hidden", shape_.hidden);
      auto* const sums = residual.as<float>("residual", {rows, width});
      decoder.norm(rows.value(), sums, as_or_null<const T>(delta, "delta", {rows, width}),
                   weight.as<const T>("weight", {width}), out.as<T>("out", {rows, width}));
    });
  }

  void attend(std::int64_t layer, const TensorView& qkv, const TensorView& cosine, const TensorView& sine,
              const Batch& batch, const KvCache& cache, const TensorView& out) {
    if (layer < 0 || layer >= layers_) throw std::invalid_argument("no layer " + std::to_string(layer));
    run([&]<class T>(Decoder<T>& decoder) {
      Size tokens("tokens", batch.tokens());
      Size kept = layer + 1 == layers_ ? Size("wanted", batch.wanted_tokens()) : tokens;
      Size qkv_width("(heads + 2 kv_heads) head_dim", shape_.qkv_width());
      Size head_dim("head_dim", shape_.head_dim);
      Size attended("heads head_dim", shape_.heads * shape_.head_dim);
      decoder.attend(layer, qkv.as<const T>("qkv", {tokens, qkv_width}),
                     cosine.as<const float>("cosine", {tokens, head_dim}),
                     sine.as<const float>("sine", {tokens, head_dim}), batch, cache_of<T>(cache),
                     out.as<T>("out", {kept, attended}));
    });
  }

  void gate(const TensorView& gate_up, const TensorView& out) {
    run([&]<class T>(Decoder<T>& decoder) {
      Size rows("rows");
      Size gate_up_width("2 intermediate", 2 * shape_.intermediate);
      Size width("intermediate", shape_.intermediate);
      const T* const from = gate_up.as<const T>("gate_up", {rows, gate_up_width});
      decoder.gate(rows.value(), from, out.as<T>("out", {rows, width}));
    });
  }

 private:
  using AnyDecoder = std::variant<Decoder<float>, Decoder<BFloat16>>;

  static AnyDecoder decoder_of(ThreadPool& pool, const DecoderShape& shape, const std::vector<LayerTensors>& layers,
                               const TensorView& final_norm) {
    return with_element_type(final_norm.type(), "final_norm", [&]<class T>() -> AnyDecoder {
      Size hidden("hidden", shape.hidden);
      return Decoder<T>(pool, shape, layers_of<T>(layers, shape), final_norm.as<const T>("final_norm", {hidden}));
    });
  }

  template <class Call>
  void run(Call&& call) {
    std::visit(std::forward<Call>(call), decoder_);
  }

  DecoderShape shape_;
  std::int64_t layers_;
  AnyDecoder decoder_;
};

using Layers = py::typing::Tuple<LayerTensors, py::ellipsis>;

std::unique_ptr<BoundDecoder> make_decoder(ThreadPool& pool, const DecoderShape& shape, const Layers& layers,
                                           const TensorView& final_norm) {
  return std::make_unique<BoundDecoder>(pool, shape, layers.cast<std::vector<LayerTensors>>(), final_norm);
}

void bind_shapes(py::module_& module) {
  py::class_<LayerTensors>(module, "DecoderLayer",
                           "A layer's weights; norms of query and key heads are None if it has none.")
      .def(py::init([](const TensorView& input_norm, const WeightTensors& qkv, std::optional<TensorView> query_norm,
                       std::optional<TensorView> key_norm, const WeightTensors& output,
                       const TensorView& attention_norm, const WeightTensors& gate_up, const WeightTensors& down) {
             return LayerTensors{input_norm, qkv, query_norm, key_norm, output, attention_norm, gate_up, down};
           }),
           py::kw_only(), py::arg("input_norm"), py::arg("qkv"), py::arg("query_norm"), py::arg("key_norm"),
           py::arg("output"), py::arg("attention_norm"), py::arg("gate_up"), py::arg("down"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>(), py::keep_alive<1, 4>(), py::keep_alive<1, 5>(), py::keep_alive<1, 6>(),
           py::keep_alive<1, 7>(), py::keep_alive<1, 8>(), py::keep_alive<1, 9>());
  py::class_<DecoderShape>(module, "DecoderShape", "The sizes of a decoder, and the constants of norms and attention.")
      .def(py::init<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, float, float>(),
           py::kw_only(), py::arg("hidden"), py::arg("heads"), py::arg("kv_heads"), py::arg("head_dim"),
           py::arg("intermediate"), py::arg("epsilon"), py::arg("scale"));
}

}  // namespace

void bind_decoder(py::module_& module) {
  bind_shapes(module);
  py::class_<BoundDecoder>(module, "Decoder",
                           R"(The layers of a llama-like decoder over a ragged batch of T tokens, W of them wanted.

Weights, activations and cache have one element type, float32 or bfloat16; cosine and sine are float32 [T, head_dim].
Raises ValueError if a batch does not fit the cache. One call at a time.)")
      .def(py::init(&make_decoder), py::arg("pool"), py::arg("shape"), py::arg("layers"), py::arg("final_norm"),
           py::keep_alive<1, 2>(), py::keep_alive<1, 4>(), py::keep_alive<1, 5>())
      .def("step", &BoundDecoder::step, py::arg("embeds"), py::arg("cosine"), py::arg("sine"), py::arg("batch"),
           py::arg("cache"), py::arg("hidden"), Release(),
           R"(Run all layers and the final norm, from embeds [T, hidden] to hidden [W, hidden].

Writes all tokens' keys and values to the cache.)")
      .def("plan", &BoundDecoder::plan, py::arg("batch"), py::arg("cache"), Release(),
           "Prepare the methods below, the parts of a step, for a batch.")
      .def("norm", &BoundDecoder::norm, py::arg("residual"), py::arg("delta"), py::arg("weight"), py::arg("out"),
           Release(), "Add delta, unless None, to residual (float32), and write its norm to out; all [rows, hidden].")
      .def("attend", &BoundDecoder::attend, py::arg("layer"), py::arg("qkv"), py::arg("cosine"), py::arg("sine"),
           py::arg("batch"), py::arg("cache"), py::arg("out"), Release(),
           R"(Attend from queries, keys and values before rotation, qkv [T, (heads + 2 kv_heads) head_dim].

Layers come in their order; out is [T, heads head_dim], the last layer's [W, heads head_dim].)")
      .def("gate", &BoundDecoder::gate, py::arg("gate_up"), py::arg("out"), Release(),
           "Write silu(gate) * up [rows, intermediate] of gate_up [rows, 2 intermediate] to out.");
}

}  // namespace unified
