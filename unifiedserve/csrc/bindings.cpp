// The Python face of the core. Tensors come as addresses; shapes and types are those of unifiedserve/_core.pyi, and the
// modules that call these functions check them.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "batch.h"
#include "decoder.h"
#include "kernels.h"
#include "kv_cache.h"
#include "linear.h"
#include "paged_attention.h"
#include "sequence_attention.h"
#include "thread_pool.h"

namespace py = pybind11;

namespace unified {

namespace {

using Address = std::uintptr_t;
using Release = py::call_guard<py::gil_scoped_release>;

template <class T>
T* pointer(Address address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

template <class T>
using Array = py::array_t<T, py::array::c_style>;

// A batch and the arrays that it views.
class BatchArrays {
 public:
  BatchArrays(Array<std::int32_t> rows, Array<std::int32_t> ranges, Array<std::int32_t> pages,
              Array<std::int32_t> kv_lens, Array<std::int64_t> slots, Array<std::int32_t> wanted)
      : rows_(std::move(rows)),
        ranges_(std::move(ranges)),
        pages_(std::move(pages)),
        kv_lens_(std::move(kv_lens)),
        slots_(std::move(slots)),
        wanted_(std::move(wanted)),
        view_{view(rows_), view(ranges_), view(pages_), view(kv_lens_), view(slots_), view(wanted_)} {}

  const Batch& get() const { return view_; }

 private:
  template <class T>
  static std::span<const T> view(const Array<T>& array) {
    return {array.data(), static_cast<std::size_t>(array.size())};
  }

  Array<std::int32_t> rows_;
  Array<std::int32_t> ranges_;
  Array<std::int32_t> pages_;
  Array<std::int32_t> kv_lens_;
  Array<std::int64_t> slots_;
  Array<std::int32_t> wanted_;
  Batch view_;
};

struct WeightAddress {
  Address matrix;
  Address bias;
  std::int64_t outputs;
  std::int64_t inputs;

  template <class T>
  Weight<T> of() const {
    return {pointer<const T>(matrix), pointer<const T>(bias), outputs, inputs};
  }
};

struct LayerAddresses {
  Address input_norm;
  WeightAddress qkv;
  Address query_norm;
  Address key_norm;
  WeightAddress output;
  Address attention_norm;
  WeightAddress gate_up;
  WeightAddress down;

  template <class T>
  DecoderLayer<T> of() const {
    return {pointer<const T>(input_norm),
            qkv.of<T>(),
            pointer<const T>(query_norm),
            pointer<const T>(key_norm),
            output.of<T>(),
            pointer<const T>(attention_norm),
            gate_up.of<T>(),
            down.of<T>()};
  }
};

template <class T>
std::unique_ptr<Decoder<T>> make_decoder(ThreadPool& pool, const DecoderShape& shape,
                                         const std::vector<LayerAddresses>& layers, Address final_norm) {
  std::vector<DecoderLayer<T>> typed;
  typed.reserve(layers.size());
  for (const LayerAddresses& layer : layers) typed.push_back(layer.of<T>());
  return std::make_unique<Decoder<T>>(pool, shape, std::move(typed), pointer<const T>(final_norm));
}

template <class T>
void bind_decoder(py::module_& module, const char* name) {
  using Self = Decoder<T>;
  py::class_<Self>(module, name)
      .def(py::init(&make_decoder<T>), py::arg("pool"), py::arg("shape"), py::arg("layers"), py::arg("final_norm"),
           py::keep_alive<1, 2>())
      .def(
          "step",
          [](Self& self, Address embeds, Address cosine, Address sine, const BatchArrays& batch, const KvCache& cache,
             Address hidden) {
            self.step(pointer<const T>(embeds), pointer<const float>(cosine), pointer<const float>(sine), batch.get(),
                      cache, pointer<T>(hidden));
          },
          py::arg("embeds"), py::arg("cosine"), py::arg("sine"), py::arg("batch"), py::arg("cache"), py::arg("hidden"),
          Release())
      .def(
          "plan", [](Self& self, const BatchArrays& batch, const KvCache& cache) { self.plan(batch.get(), cache); },
          py::arg("batch"), py::arg("cache"), Release())
      .def(
          "norm",
          [](Self& self, std::int64_t rows, Address residual, Address delta, Address weight, Address out) {
            self.norm(rows, pointer<float>(residual), pointer<const T>(delta), pointer<const T>(weight),
                      pointer<T>(out));
          },
          py::arg("rows"), py::arg("residual"), py::arg("delta"), py::arg("weight"), py::arg("out"), Release())
      .def(
          "attend",
          [](Self& self, std::int64_t layer, Address qkv, Address cosine, Address sine, const BatchArrays& batch,
             const KvCache& cache, Address out) {
            self.attend(layer, pointer<const T>(qkv), pointer<const float>(cosine), pointer<const float>(sine),
                        batch.get(), cache, pointer<T>(out));
          },
          py::arg("layer"), py::arg("qkv"), py::arg("cosine"), py::arg("sine"), py::arg("batch"), py::arg("cache"),
          py::arg("out"), Release())
      .def(
          "gate",
          [](Self& self, std::int64_t rows, Address gate_up, Address out) {
            self.gate(rows, pointer<const T>(gate_up), pointer<T>(out));
          },
          py::arg("rows"), py::arg("gate_up"), py::arg("out"), Release());
}

template <class T>
void bind_linear(py::module_& module, const char* name) {
  module.def(
      name,
      [](ThreadPool& pool, Address x, std::int64_t rows, const WeightAddress& weight, Address y) {
        linear(pool, pointer<const T>(x), rows, weight.of<T>(), pointer<float>(y), false);
      },
      py::arg("pool"), py::arg("x"), py::arg("rows"), py::arg("weight"), py::arg("y"), Release());
}

template <class T>
void attend(ThreadPool& pool, std::int64_t heads, float scale, std::int64_t layer, const Batch& batch,
            const KvCache& cache, const T* q, T* out, std::optional<std::int64_t> window) {
  batch.check(cache);
  if (layer < 0 || layer >= cache.layers) throw std::invalid_argument("no layer " + std::to_string(layer));
  if (window && *window < 1) throw std::invalid_argument("a window of " + std::to_string(*window) + " keys");
  PagedAttention<T> attention(pool, heads, cache.kv_heads, cache.head_dim, scale,
                              window.value_or(PagedAttention<T>::kEverything));
  attention.plan(batch);
  attention.run(batch, cache, layer, q, out);
}

template <class T>
void bind_attention(py::module_& module, const char* name) {
  module.def(
      name,
      [](ThreadPool& pool, std::int64_t heads, float scale, std::int64_t layer, const BatchArrays& batch,
         const KvCache& cache, Address q, Address out, std::optional<std::int64_t> window) {
        attend<T>(pool, heads, scale, layer, batch.get(), cache, pointer<const T>(q), pointer<T>(out), window);
      },
      py::arg("pool"), py::arg("heads"), py::arg("scale"), py::arg("layer"), py::arg("batch"), py::arg("cache"),
      py::arg("q"), py::arg("out"), py::arg("window") = py::none(), Release());
}

template <class T>
void bind_encoder(py::module_& module, const std::string& suffix) {
  module.def(
      ("attend_sequences_" + suffix).c_str(),
      [](ThreadPool& pool, Address qkv, std::int64_t rows, std::int64_t heads, std::int64_t head_dim, Address cosine,
         Address sine, float scale, const std::vector<std::array<std::int64_t, 3>>& groups, Address out) {
        std::vector<SequenceGroup> typed;
        typed.reserve(groups.size());
        for (const auto& [start, sequences, length] : groups) typed.push_back({start, sequences, length});
        attend_sequences<T>(pool,
                            {pointer<const T>(qkv), rows, heads, head_dim, pointer<const float>(cosine),
                             pointer<const float>(sine), scale},
                            typed, pointer<T>(out));
      },
      py::arg("pool"), py::arg("qkv"), py::arg("rows"), py::arg("heads"), py::arg("head_dim"), py::arg("cosine"),
      py::arg("sine"), py::arg("scale"), py::arg("groups"), py::arg("out"), Release());
  module.def(("rms_norm_" + suffix).c_str(),
             [](ThreadPool& pool, Address x, std::int64_t rows, std::int64_t width, Address weight, float epsilon,
                Address out) {
               rms_norm(pool, pointer<const T>(x), rows, width, pointer<const T>(weight), epsilon, pointer<T>(out));
             },
             py::arg("pool"), py::arg("x"), py::arg("rows"), py::arg("width"), py::arg("weight"), py::arg("epsilon"),
             py::arg("out"), Release());
}

void bind_data(py::module_& module) {
  py::class_<KvCache>(module, "KvCache")
      .def(py::init([](Address data, std::int64_t pages, std::int64_t layers, std::int64_t page_size,
                       std::int64_t kv_heads, std::int64_t head_dim) {
             return KvCache{pointer<void>(data), pages, layers, page_size, kv_heads, head_dim};
           }),
           py::arg("data"), py::arg("pages"), py::arg("layers"), py::arg("page_size"), py::arg("kv_heads"),
           py::arg("head_dim"));
  py::class_<BatchArrays>(module, "Batch")
      .def(py::init<Array<std::int32_t>, Array<std::int32_t>, Array<std::int32_t>, Array<std::int32_t>,
                    Array<std::int64_t>, Array<std::int32_t>>(),
           py::arg("qo_indptr"), py::arg("kv_page_indptr"), py::arg("kv_page_indices"), py::arg("kv_lens"),
           py::arg("slots"), py::arg("wanted_indptr"));
  py::class_<WeightAddress>(module, "Weight")
      .def(py::init<Address, Address, std::int64_t, std::int64_t>(), py::arg("matrix"), py::arg("bias"),
           py::arg("outputs"), py::arg("inputs"));
  py::class_<LayerAddresses>(module, "DecoderLayer")
      .def(py::init<Address, WeightAddress, Address, Address, WeightAddress, Address, WeightAddress, WeightAddress>(),
           py::kw_only(), py::arg("input_norm"), py::arg("qkv"), py::arg("query_norm"), py::arg("key_norm"),
           py::arg("output"), py::arg("attention_norm"), py::arg("gate_up"), py::arg("down"));
  py::class_<DecoderShape>(module, "DecoderShape")
      .def(py::init<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, float, float>(),
           py::kw_only(), py::arg("hidden"), py::arg("heads"), py::arg("kv_heads"), py::arg("head_dim"),
           py::arg("intermediate"), py::arg("epsilon"), py::arg("scale"));
}

}  // namespace

// NOLINTNEXTLINE: pybind11's macro
PYBIND11_MODULE(_core, module) {
  py::class_<ThreadPool>(module, "ThreadPool")
      .def(py::init<int>(), py::arg("threads"))
      .def_property_readonly("threads", &ThreadPool::threads)
      .def("use", &ThreadPool::use, py::arg("threads"));
  bind_data(module);
  bind_linear<float>(module, "linear_float32");
  bind_linear<BFloat16>(module, "linear_bfloat16");
  bind_attention<float>(module, "attend_float32");
  bind_attention<BFloat16>(module, "attend_bfloat16");
  bind_encoder<float>(module, "float32");
  bind_encoder<BFloat16>(module, "bfloat16");
  bind_decoder<float>(module, "DecoderFloat32");
  bind_decoder<BFloat16>(module, "DecoderBFloat16");
  module.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const KernelSet* set : available_kernels()) names.emplace_back(set->name);
    return names;
  });
  module.def("instruction_set", [] { return std::string(current_kernels().name); });
  module.def(
      "select_instruction_set", [](const std::string& name) { select_kernels(name); }, py::arg("name"));
}

}  // namespace unified
