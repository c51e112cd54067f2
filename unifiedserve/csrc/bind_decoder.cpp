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
               const TensorView& final_norm, native::AllReduce* all_reduce)
      : shape_(shape), decoder_(decoder_of(pool, shape, layers, final_norm, all_reduce)) {}

  void step(const TensorView& embeds, const TensorView& cosine, const TensorView& sine, const Batch& batch,
            const KvCache& cache, const TensorView& hidden) {
    std::visit(
        [&]<class T>(Decoder<T>& decoder) {
          Size tokens("tokens", batch.tokens());
          Size wanted("wanted", batch.wanted_tokens());
          Size hidden_size("hidden", shape_.hidden);
          Size head_dim("head_dim", shape_.head_dim);
          Size width("a multiple of hidden");
          const T* const from = embeds.as<const T>("embeds", {tokens, width});
          if (width.value() == 0 || width.value() % shape_.hidden != 0) {
            throw std::invalid_argument("embeds: expected a multiple of " + std::to_string(shape_.hidden) +
                                        " columns, got " + std::to_string(width.value()));
          }
          decoder.step(from, width.value(), cosine.as<const float>("cosine", {tokens, head_dim}),
                       sine.as<const float>("sine", {tokens, head_dim}), batch, cache_of<T>(cache),
                       hidden.as<T>("hidden", {wanted, hidden_size}));
        },
        decoder_);
  }

 private:
  using AnyDecoder = std::variant<Decoder<float>, Decoder<BFloat16>>;

  static AnyDecoder decoder_of(ThreadPool& pool, const DecoderShape& shape, const std::vector<LayerTensors>& layers,
                               const TensorView& final_norm, native::AllReduce* all_reduce) {
    return with_element_type(final_norm.type(), "final_norm", [&]<class T>() -> AnyDecoder {
      Size hidden("hidden", shape.hidden);
      return Decoder<T>(pool, shape, layers_of<T>(layers, shape), final_norm.as<const T>("final_norm", {hidden}),
                        all_reduce);
    });
  }

  DecoderShape shape_;
  AnyDecoder decoder_;
};

using Layers = py::typing::Tuple<LayerTensors, py::ellipsis>;

std::unique_ptr<BoundDecoder> make_decoder(ThreadPool& pool, const DecoderShape& shape, const Layers& layers,
                                           const TensorView& final_norm, std::optional<native::AllReduce*> all_reduce) {
  return std::make_unique<BoundDecoder>(pool, shape, layers.cast<std::vector<LayerTensors>>(), final_norm,
                                        all_reduce.value_or(nullptr));
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

Activations and cache have one element type, float32 or bfloat16, and weights, too, but those of bfloat16 or codes go with
float32, and the cache may have codes; cosine and sine are
float32 [T, head_dim]. With `all_reduce` it is one of several ranks that take the same steps: the shape is that of its
own heads and inner columns, and what all ranks add up to goes on.
Raises ValueError if a batch does not fit the cache, and CollectiveError if a rank does not come. One call at a time.)")
      .def(py::init(&make_decoder), py::arg("pool"), py::arg("shape"), py::arg("layers"), py::arg("final_norm"),
           py::arg("all_reduce") = py::none(), py::keep_alive<1, 2>(), py::keep_alive<1, 4>(), py::keep_alive<1, 5>(),
           py::keep_alive<1, 6>())
      .def("step", &BoundDecoder::step, py::arg("embeds"), py::arg("cosine"), py::arg("sine"), py::arg("batch"),
           py::arg("cache"), py::arg("hidden"), Release(),
           R"(Run all layers and the final norm, from embeds [T, width] to hidden [W, hidden].

Columns of embeds behind the first `hidden` are added after the first layers, `hidden` after each. Writes all tokens'
keys and values to the cache.)");
}

}  // namespace unified
