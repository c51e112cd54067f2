#include "arguments.h"
#include "batch.h"
#include "bindings.h"

namespace py = pybind11;

namespace unified {

namespace {

KvCache kv_cache(const TensorView& data) {
  return with_element_type(data.type(), "data", [&]<class T>() {
    Size pages("pages");
    Size layers("layers");
    Size kinds("kinds", 2);
    Size page_size("page_size");
    Size kv_heads("kv_heads");
    Size head_dim("head_dim");
    T* const elements = data.as<T>("data", {pages, layers, kinds, page_size, kv_heads, head_dim});
    return KvCache{elements,          data.type(),      pages.value(),   layers.value(),
                   page_size.value(), kv_heads.value(), head_dim.value()};
  });
}

Batch batch_of(const TensorView& qo_indptr, const TensorView& kv_page_indptr, const TensorView& kv_page_indices,
               const TensorView& kv_lens, const TensorView& slots, const TensorView& wanted_indptr) {
  const Batch batch{qo_indptr.vector<std::int32_t>("qo_indptr"),
                    kv_page_indptr.vector<std::int32_t>("kv_page_indptr"),
                    kv_page_indices.vector<std::int32_t>("kv_page_indices"),
                    kv_lens.vector<std::int32_t>("kv_lens"),
                    slots.vector<std::int64_t>("slots"),
                    wanted_indptr.vector<std::int32_t>("wanted_indptr")};
  batch.check();
  return batch;
}

WeightTensors weight_of(const TensorView& matrix, const std::optional<TensorView>& bias) {
  const WeightTensors weight{matrix, bias};
  with_element_type(matrix.type(), "matrix", [&]<class T>() {
    Size outputs("outputs");
    Size inputs("inputs");
    weight.as<T>("weight", outputs, inputs);
  });
  return weight;
}

}  // namespace

void bind_arguments(py::module_& module) {
  py::class_<KvCache>(module, "KvCache",
                      "Pages of keys and values [pages, layers, 2, page_size, kv_heads, head_dim], K before V.")
      .def(py::init(&kv_cache), py::arg("data"), py::keep_alive<1, 2>());
  py::class_<Batch>(
      module, "Batch",
      "The index arrays of a RaggedBatch: int32, `slots` int64. Raises ValueError if they contradict each "
      "other.")
      .def(py::init(&batch_of), py::arg("qo_indptr"), py::arg("kv_page_indptr"), py::arg("kv_page_indices"),
           py::arg("kv_lens"), py::arg("slots"), py::arg("wanted_indptr"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>(), py::keep_alive<1, 4>(), py::keep_alive<1, 5>(), py::keep_alive<1, 6>(),
           py::keep_alive<1, 7>());
  py::class_<WeightTensors>(module, "Weight", "A matrix [outputs, inputs] and perhaps its bias [outputs].")
      .def(py::init(&weight_of), py::arg("matrix"), py::arg("bias"), py::keep_alive<1, 2>(), py::keep_alive<1, 3>());
}

}  // namespace unified
