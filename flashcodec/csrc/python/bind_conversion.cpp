// One picture to a layout, by each of the ways there are: for tests and benchmarks.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

extern "C" {
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
}

#include "engines/nvdec/gpu_points.h"
#include "ffmpeg/decoding.h"
#include "native/released_gil.h"
#include "pixels/ffmpeg_picture.h"
#include "pixels/frame_writer.h"
#include "pixels/points/host_points.h"
#include "pixels/points/point_writer.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace flashcodec {

namespace {

using Pixels = py::array_t<uint8_t, py::array::c_style>;

// The places of all frames of a group.
std::vector<Place> places_in(const Layout& layout, uint8_t* group) {
  std::vector<Place> places;
  places.reserve(layout.group_frames());
  for (int slot = 0; slot < layout.group_frames(); ++slot) places.push_back({group, slot});
  return places;
}

// One group with the same picture in all of its frames.
template <class Write>
py::array_t<uint8_t> write_group(const Layout& layout, Write write) {
  py::array_t<uint8_t> group(static_cast<py::ssize_t>(layout.group_bytes()));
  const std::vector<Place> places = places_in(layout, group.mutable_data());
  const native::ReleasedGil release;
  write(places);
  return group;
}

// One picture, which fills its group, or several of one size; the last of them fills it up.
py::array_t<uint8_t> lay_out(const Pixels& rgb, const Layout& layout, std::optional<std::string> kernels) {
  const bool several = rgb.ndim() == 4;
  const py::ssize_t first = several ? 1 : 0;
  if ((rgb.ndim() != 3 && !several) || rgb.shape(first + 2) != 3 || rgb.size() == 0) {
    throw py::value_error("pictures must be uint8 [height, width, 3] or [frames, height, width, 3] and not empty");
  }
  const auto frames = several ? static_cast<int>(rgb.shape(0)) : 1;
  if (frames > layout.group_frames()) throw py::value_error("more pictures than a group has frames");
  const auto view = [&](int frame) {
    const size_t offset = several ? static_cast<size_t>(frame) * rgb.strides(0) : 0;
    return RgbView{rgb.data() + offset, static_cast<size_t>(rgb.strides(first)), static_cast<int>(rgb.shape(first + 1)),
                   static_cast<int>(rgb.shape(first))};
  };
  FrameWriter writer(kernels ? kernels_named(*kernels) : best_kernels());
  return write_group(layout, [&](const std::vector<Place>& places) {
    const std::span all(places);
    for (int frame = 0; frame < frames; ++frame) {
      writer.write(view(frame), layout, frame + 1 < frames ? all.subspan(frame, 1) : all.subspan(frame));
    }
  });
}

// A decoder's picture, for tests and benchmarks: its planes as `raw_bytes` has them.
FramePtr frame_of(const Pixels& planes, const std::string& format, int height, int width, int matrix, bool full_range) {
  auto frame = owned<FramePtr>(av_frame_alloc());
  frame->format = av_get_pix_fmt(format.c_str());
  frame->height = height;
  frame->width = width;
  frame->colorspace = static_cast<AVColorSpace>(matrix);
  frame->color_range = full_range ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
  if (frame->format == AV_PIX_FMT_NONE || height <= 0 || width <= 0 ||
      static_cast<size_t>(planes.size()) != raw_bytes(picture_of(*frame))) {
    throw py::value_error("planes do not fit the pixel format and size");
  }
  if (av_frame_get_buffer(frame.get(), 0) < 0) throw std::bad_alloc();
  const auto pixels = static_cast<AVPixelFormat>(frame->format);
  std::array<uint8_t*, 4> data{};
  std::array<int, 4> strides{};
  av_image_fill_arrays(data.data(), strides.data(), planes.data(), pixels, width, height, 1);
  std::array<const uint8_t*, 4> sources{data[0], data[1], data[2], data[3]};
  av_image_copy(frame->data, frame->linesize, sources.data(), strides.data(), pixels, width, height);
  return frame;
}

void write_points(PointDevice& points, const Picture& picture, Orientation orientation, const Layout& layout,
                  uint8_t* group) {
  const std::optional<Surface> surface = surface_of(picture);
  PointWriter writer(points);
  const PictureFormat format = planar_format(picture.format);
  if (!surface) throw std::invalid_argument("no points for this pixel format");
  if (!writer.fits(format, picture.height, picture.width)) throw std::invalid_argument("no points for this size");
  writer.write(*surface, format, orientation, layout, places_in(layout, group));
}

void write_on_gpu(Picture picture, Orientation orientation, const Layout& layout, const GpuPtr& gpu,
                  std::span<uint8_t> out) {
  GpuPoints points(gpu);
  std::vector<std::shared_ptr<const std::byte>> planes;
  for (size_t i = 0; i < picture.planes.size() && picture.planes[i] != nullptr; ++i) {
    const int rows = i == 0 ? picture.height : picture.height >> picture.format.chroma_shift_y;
    const std::span plane(picture.planes[i], static_cast<size_t>(picture.strides[i]) * rows);
    planes.push_back(points.upload(std::as_bytes(plane)));
    picture.planes[i] = reinterpret_cast<const uint8_t*>(planes.back().get());
  }
  const std::shared_ptr<uint8_t[]> group = gpu->take(out.size());
  points.finish([&] { write_points(points, picture, orientation, layout, group.get()); });
  const auto now = gpu->current();
  const auto& driver = gpu->driver();
  driver.call(driver.copy_to_host, out.data(), reinterpret_cast<native::cuda::Address>(group.get()), out.size());
}

// Converts one picture again and again with one writer, as an engine does.
class Conversion {
 public:
  Conversion(const Pixels& planes, const std::string& format, int height, int width, int matrix, bool full_range,
             std::optional<std::string> kernels)
      : frame_(frame_of(planes, format, height, width, matrix, full_range)),
        writer_(kernels ? kernels_named(*kernels) : best_kernels()) {}

  py::array_t<uint8_t> lay_out(const Layout& layout, int quarter_turns, bool mirrored) {
    return write_group(layout, [&](const std::vector<Place>& places) {
      writer_.write(picture_of(*frame_), Orientation{quarter_turns, mirrored}, layout, places);
    });
  }

  // By the functions of single pixels that a GPU runs, also of interleaved chroma (NV12, P010 and their kin): on a GPU,
  // or one after the other.
  py::array_t<uint8_t> lay_out_by_points(const Layout& layout, int quarter_turns, bool mirrored,
                                         std::optional<int> gpu) {
    Picture picture = picture_of(*frame_);
    py::array_t<uint8_t> group(static_cast<py::ssize_t>(layout.group_bytes()));
    const std::span<uint8_t> out(group.mutable_data(), layout.group_bytes());
    const native::ReleasedGil release;
    if (gpu) {
      write_on_gpu(picture, Orientation{quarter_turns, mirrored}, layout, std::make_shared<Gpu>(*gpu), out);
    } else {
      HostPoints points;
      write_points(points, picture, Orientation{quarter_turns, mirrored}, layout, out.data());
    }
    return group;
  }

 private:
  FramePtr frame_;
  FrameWriter writer_;
};

py::typing::List<py::str> kernel_names() {
  py::typing::List<py::str> names;
  for (const Kernels* kernels : available_kernels()) names.append(std::string(kernels->name));
  return names;
}

}  // namespace

void bind_conversion(py::module_& module) {
  py::class_<Conversion>(module, "Conversion")
      .def(py::init<const Pixels&, const std::string&, int, int, int, bool, std::optional<std::string>>(),
           py::arg("planes").noconvert(), py::arg("pixel_format"), py::arg("height"), py::arg("width"),
           py::arg("color_space"), py::arg("full_range"), py::arg("kernels") = py::none())
      .def("lay_out", &Conversion::lay_out, py::arg("layout"), py::arg("quarter_turns") = 0,
           py::arg("mirrored") = false)
      .def("lay_out_by_points", &Conversion::lay_out_by_points, py::arg("layout"), py::arg("quarter_turns") = 0,
           py::arg("mirrored") = false, py::arg("gpu") = py::none());
  module.def("kernels", &kernel_names);
  module.def("has_gpu_kernels", [] { return !point_kernels().empty(); });
  module.def("lay_out", &lay_out, py::arg("rgb").noconvert(), py::arg("layout"), py::arg("kernels") = py::none());
}

}  // namespace flashcodec
