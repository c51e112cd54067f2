// JPEGs by a GPU's hardware.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engines/nvjpeg/jpeg_decoder.h"
#include "native/released_gil.h"
#include "python/bindings.h"
#include "python/gpu_array.h"

namespace py = pybind11;

namespace flashcodec {

namespace {

// Nothing if the hardware does not decode these bytes.
std::optional<GpuArray> decode(JpegDecoder& decoder, const py::buffer& jpeg, int quarter_turns, bool mirrored,
                               const Layout& layout, const std::vector<int64_t>& shape) {
  const py::buffer_info bytes = jpeg.request();
  const std::span data(static_cast<const unsigned char*>(bytes.ptr), static_cast<size_t>(bytes.size * bytes.itemsize));
  std::shared_ptr<uint8_t[]> group;
  {
    const native::ReleasedGil release;
    group = decoder.decode(data, Orientation{quarter_turns, mirrored}, layout);
  }
  if (group == nullptr) return std::nullopt;
  return GpuArray(std::move(group), decoder.gpu(), shape);
}

}  // namespace

void bind_images(py::module_& module) {
  py::class_<JpegDecoder>(module, "JpegDecoder")
      .def(py::init<int>(), py::arg("gpu"), py::call_guard<native::ReleasedGil>())
      .def("decode", &decode, py::arg("jpeg"), py::arg("quarter_turns"), py::arg("mirrored"), py::arg("layout"),
           py::arg("shape"));
}

}  // namespace flashcodec
