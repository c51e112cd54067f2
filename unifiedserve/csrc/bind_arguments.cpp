#include "arguments.h"
#include "batch.h"
#include "bindings.h"

namespace py = pybind11;

namespace unified {

namespace {

KvCache kv_cache(const TensorView& data, const std::optional<TensorView>& scales) {
  Size pages("pages");
  Size layers("layers");
  Size kinds("kinds", 2);
  Size page_size("page_size");
  Size kv_heads("kv_heads");
  Size head_dim("head_dim");
  const auto cache_of = [&]<class Stored>() -> KvCache {
    const auto elements = data.rows<Stored>("data", {pages, layers, kinds, page_size, kv_heads, head_dim});
    return {.data = elements.data,
            .scales = nullptr,
            .type = data.type(),
            .pages = pages.value(),
            .layers = layers.value(),
            .page_size = page_size.value(),
            .kv_heads = kv_heads.value(),
            .head_dim = head_dim.value(),
            .page_stride = elements.stride,
            .scale_stride = 0};
  };
  if (!scales) return with_element_type(data.type(), "data", cache_of);
  KvCache cache = cache_of.operator()<std::int8_t>();
  const auto factors = scales->rows<float>("scales", {pages, layers, kinds, kv_heads, page_size});
  cache.scales = factors.data;
  cache.scale_stride = factors.stride;
  return cache;
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

WeightTensors weight_of(const TensorView& panels, std::int64_t outputs, std::int64_t inputs,
                        const std::optional<TensorView>& bias, const std::optional<TensorView>& scales,
                        const std::optional<TensorView>& zeros) {
  if (scales.has_value() != zeros.has_value()) throw std::invalid_argument("codes need scales and zeros");
  WeightTensors weight{panels, outputs, inputs, bias, {}};
  if (scales) weight.codes = CodeTensors{*scales, *zeros};
  const auto check = [&]<class T>() {
    Size rows("outputs");
    Size columns("inputs");
    weight.as<T>("weight", rows, columns);
  };
  // Codes may have any bias, and what is narrow one of float: what they are multiplied with decides.
  if (scales && !bias) {
    check.operator()<float>();
  } else {
    with_element_type(bias ? bias->type() : panels.type(), bias ? "bias" : "panels", check);
  }
  return weight;
}

}  // namespace

void WeightTensors::check_shape(const std::string& name, Size& rows, Size& columns) const {
  if (outputs > 0 && inputs > 0 && rows.matches(outputs) && columns.matches(inputs)) return;
  throw std::invalid_argument(name + ": expected shape [" + rows.text() + ", " + columns.text() + "], got [" +
                              std::to_string(outputs) + ", " + std::to_string(inputs) + "]");
}

void WeightTensors::throw_odd(const std::string& name) const {
  throw std::invalid_argument(name + ": expected an even number of inputs, got " + std::to_string(inputs));
}

const std::uint8_t* WeightTensors::code_panels(const std::string& name) const {
  Size number("panels", panel_count());
  Size lanes("lanes", inputs * bits() / 32);
  Size of_panel("outputs of a panel", kPanelOutputs);
  Size bytes("bytes", 4);
  return panels.as<const std::uint8_t>(name + ".panels", {number, lanes, of_panel, bytes});
}

WeightCodes WeightTensors::weight_codes(const std::string& name) const {
  Size number("panels", panel_count());
  Size groups("groups");
  Size of_panel("outputs of a panel", kPanelOutputs);
  const auto* const scales = codes->scales.as<const Float16>(name + ".scales", {number, groups, of_panel});
  const std::int64_t group = groups.value() == 0 ? 0 : inputs / groups.value();
  const bool is_single = bits() == 8 && group == inputs && group % kSingleGroupUnit == 0 && group <= kMostInputsOfGroup;
  const bool is_known = is_single || group == 16 || group == 32 || group == 64 || group == 128 || group == 256;
  if (!is_known || group * groups.value() != inputs) {
    throw std::invalid_argument(
        name + ".scales: expected groups of 16, 32, 64, 128 or 256 inputs, or (8 bits) one of all, got " +
        std::to_string(groups.value()) + " for " + std::to_string(inputs) + " inputs");
  }
  return {bits(), group, scales, zeros_of(name, number, groups)};
}

Zeros WeightTensors::zeros_of(const std::string& name, Size& number, Size& groups) const {
  Size of_panel("outputs of a panel", kPanelOutputs);
  const bool is_only_table = number.value() == 1 && groups.value() == 1;
  if (codes->zeros.size(0) == 1 && codes->zeros.size(1) == 1 && !is_only_table) {
    Size one("of all", 1);
    return {codes->zeros.as<const Float16>(name + ".zeros", {one, one, of_panel}), 0};
  }
  return {codes->zeros.as<const Float16>(name + ".zeros", {number, groups, of_panel}), kPanelOutputs};
}

void bind_arguments(py::module_& module) {
  py::class_<KvCache>(module, "KvCache",
                      R"(Pages of keys and values [pages, layers, 2, page_size, kv_heads, head_dim], K before V.

Of int8 they are codes, and scales are float32 [pages, layers, 2, kv_heads, page_size]. Pages may lie at a distance.)")
      .def(py::init(&kv_cache), py::arg("data"), py::arg("scales") = py::none(), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>());
  py::class_<Batch>(
      module, "Batch",
      "The index arrays of a RaggedBatch: int32, `slots` int64. Raises ValueError if they contradict each "
      "other.")
      .def(py::init(&batch_of), py::arg("qo_indptr"), py::arg("kv_page_indptr"), py::arg("kv_page_indices"),
           py::arg("kv_lens"), py::arg("slots"), py::arg("wanted_indptr"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>(), py::keep_alive<1, 4>(), py::keep_alive<1, 5>(), py::keep_alive<1, 6>(),
           py::keep_alive<1, 7>());
  py::class_<WeightTensors>(module, "Weight", R"(A matrix [outputs, inputs] and perhaps its bias [outputs].

panels are [ceil(outputs / 16), inputs / values, 16, values], each of 16 outputs with `values` of their inputs side by
side: 1 for float32, 2 for bfloat16, which may meet float32, too. Of uint8 they are codes: 4 inputs of 8 bits, or 8
inputs of 4 bits, in the low halves of 4 bytes and then in the high ones. A weight is then (code - zero) * scale; scales
and zeros are float16 [ceil(outputs / 16), inputs / group, 16], of groups of 16, 32, 64, 128 or 256 inputs. Of 8 bits
all inputs may be one group, if they are a multiple of 64 up to 65,536. Zeros that are the same for all are [1, 1, 16].
Raises ValueError for other shapes.)")
      .def(py::init(&weight_of), py::arg("panels"), py::arg("outputs"), py::arg("inputs"), py::arg("bias") = py::none(),
           py::arg("scales") = py::none(), py::arg("zeros") = py::none(), py::keep_alive<1, 2>(),
           py::keep_alive<1, 5>(), py::keep_alive<1, 6>(), py::keep_alive<1, 7>());
}

}  // namespace unified
