// The Python face of the core. Sizes and names here are those of flashcodec/_core.pyi.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/pixdesc.h>
}

#include "bitstream/bitstream.h"
#include "ffmpeg/decoding.h"
#include "native/interruptible_wait.h"
#include "native/named_object.h"
#include "native/released_gil.h"
#include "plan/plan.h"
#include "python/bindings.h"
#include "python/gpu_array.h"
#include "python/python_source.h"
#include "serving/scheduler.h"
#include "serving/session.h"
#include "source/file_kind.h"

namespace py = pybind11;

namespace flashcodec {

namespace {

using Frames = py::array_t<int64_t, py::array::c_style>;
using Release = py::call_guard<native::ReleasedGil>;

// How often a wait looks for signals such as Ctrl-C.
constexpr auto kSignalInterval = std::chrono::milliseconds(50);

py::object to_python(const DecodeError& error) {
  constexpr std::array types{"SourceError", "UnsupportedError", "DamagedError", "LimitError", "NoVideoError"};
  const char* type = types.at(static_cast<size_t>(error.kind()));
  const auto number_or_none = [](int64_t value) {
    return value < 0 ? py::object(py::none()) : py::object(py::int_(value));
  };
  return py::module_::import("flashcodec.errors")
      .attr(type)(error.source(), number_or_none(error.stream()), error.reason(), number_or_none(error.position()));
}

template <class T, class Get>
py::array_t<T> array_of(py::ssize_t count, Get get) {
  py::array_t<T> array(count);
  T* out = array.mutable_data();
  for (py::ssize_t i = 0; i < count; ++i) out[i] = get(i);
  return array;
}

py::array_t<double> pts_seconds(const Bitstream& stream) {
  return array_of<double>(static_cast<py::ssize_t>(stream.frames().size()),
                          [&](auto i) { return stream.seconds(stream.frame_pts(static_cast<int32_t>(i))); });
}

py::array_t<double> durations_seconds(const Bitstream& stream) {
  return array_of<double>(static_cast<py::ssize_t>(stream.frames().size()),
                          [&](auto i) { return stream.seconds(stream.frame_duration(static_cast<int32_t>(i))); });
}

py::array_t<int64_t> key_frames(const Bitstream& stream) {
  std::vector<int64_t> keys;
  for (size_t i = 0; i < stream.frames().size(); ++i) {
    if (stream.packets()[stream.frames()[i]].key) keys.push_back(static_cast<int64_t>(i));
  }
  return array_of<int64_t>(static_cast<py::ssize_t>(keys.size()), [&](auto i) { return keys[i]; });
}

// Bits of a sample of the first channel, as the container's header tells; none if it tells no pixel format.
std::optional<int> bit_depth(const Bitstream& stream) {
  const AVPixFmtDescriptor* format = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(stream.parameters().format));
  return format == nullptr ? std::nullopt : std::optional(format->comp[0].depth);
}

std::vector<int64_t> to_vector(const Frames& frames) {
  if (frames.ndim() != 1) throw py::value_error("frame indices must be one-dimensional");
  return {frames.data(), frames.data() + frames.size()};
}

// The bytes of an output as an array that owns them.
native::NamedObject<"numpy.typing.NDArray[numpy.uint8]"> take_data(Output& output) {
  if (output.data == nullptr) return py::none();
  using Bytes = std::shared_ptr<uint8_t[]>;
  const auto size = static_cast<py::ssize_t>(output.bytes);
  uint8_t* data = output.data.get();
  const py::capsule owner(new Bytes(std::move(output.data)),
                          [](void* p) { std::default_delete<Bytes>()(static_cast<Bytes*>(p)); });
  return py::array_t<uint8_t>(size, data, owner);
}

// The bytes of an output on a GPU as an array of this shape that owns them.
GpuArray take_gpu_array(Output& output, const std::vector<int64_t>& shape) {
  if (output.data == nullptr || !output.gpu) throw py::value_error("the output has no bytes on a GPU");
  return {std::move(output.data), *output.gpu, shape};
}

// As Python's time.monotonic() counts them.
double seconds(Output::Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

std::optional<Output> take(Session& session, std::optional<double> timeout) {
  if (timeout && !(*timeout > 0)) timeout = 0;
  std::optional<Output> output;
  native::wait_interruptibly(native::deadline_after(timeout), kSignalInterval, [&](native::TimePoint until) {
    const native::ReleasedGil release;
    output = session.take(until - std::chrono::steady_clock::now());
    return output.has_value();
  });
  return output;
}

// Memory of the caller's: an array of the host, or the address and size of bytes on the session's GPU.
using HostArray = py::array_t<uint8_t, py::array::c_style>;
using GpuBytes = std::pair<uintptr_t, size_t>;
using Out = std::variant<HostArray, GpuBytes>;

uint8_t* address_of(Out& out, size_t bytes) {
  auto* const array = std::get_if<HostArray>(&out);
  const size_t size = array != nullptr ? static_cast<size_t>(array->nbytes()) : std::get<GpuBytes>(out).second;
  if (size != bytes) throw py::value_error("out has the wrong size");
  if (array != nullptr) return array->mutable_data();
  return reinterpret_cast<uint8_t*>(std::get<GpuBytes>(out).first);  // NOLINT(performance-no-int-to-ptr): Python's
}

// A time of Python's time.monotonic(), which counts as the clock here does; those far away may be moved nearer.
Output::Clock::time_point moment(double seconds) {
  constexpr double kFar = 1e9;
  if (std::isnan(seconds)) throw py::value_error("turn must be a number");
  const std::chrono::duration<double> since(std::clamp(seconds, -kFar, kFar));
  return Output::Clock::time_point(std::chrono::duration_cast<Output::Clock::duration>(since));
}

uint64_t add(Session& session, BitstreamPtr stream, const Frames& frames, const Layout& layout, std::optional<Out> out,
             int priority, std::optional<double> turn, bool fast, DecodeOn decode_on, bool report,
             std::optional<uint64_t> id) {
  const std::vector<int64_t> list = to_vector(frames);
  uint8_t* memory = nullptr;
  if (out) {
    const size_t groups = (list.size() + layout.group_frames() - 1) / layout.group_frames();
    if (layout.kind == LayoutKind::kRaw) throw py::value_error("out has the wrong size");
    memory = address_of(*out, groups * layout.group_bytes());
  }
  const native::ReleasedGil release;
  return session.add(std::move(stream), list, layout,
                     {priority, turn ? std::optional(moment(*turn)) : std::nullopt, fast, decode_on, report, id},
                     memory);
}

using Ranges = py::typing::Tuple<py::typing::Tuple<int, int>, py::ellipsis>;
using Segments = py::typing::Tuple<py::typing::Tuple<int, int, Ranges, int, int, int, bool>, py::ellipsis>;

Segments plan(const Bitstream& stream, const Frames& frames, int group_frames, int engines) {
  const std::vector<int64_t> list = to_vector(frames);
  std::vector<Segment> segments;
  std::vector<PacketCount> counts;
  {
    const native::ReleasedGil release;
    segments = make_segments(stream, list, group_frames, engines);
    counts.reserve(segments.size());
    for (const Segment& segment : segments) {
      const auto part = std::span(list).subspan(segment.first, segment.last - segment.first);
      counts.push_back(count_packets(stream, segment.runs, part));
    }
  }
  py::list result;
  for (size_t i = 0; i < segments.size(); ++i) {
    py::list runs;
    for (const Run& run : segments[i].runs) runs.append(py::make_tuple(run.first, run.last));
    result.append(py::make_tuple(segments[i].first, segments[i].last, py::tuple(runs), counts[i].cost, counts[i].needed,
                                 counts[i].skipped, segments[i].wide));
  }
  return Segments(result);
}

using KindTimes = py::typing::List<py::typing::Tuple<py::str, int, double, bool>>;

// Name, engines, estimated seconds and whether it is chosen, of each kind that can decode the frames.
KindTimes estimate(const Scheduler& scheduler, const Bitstream& stream, const Frames& frames, DecodeOn decode_on) {
  const std::vector<int64_t> list = to_vector(frames);
  std::vector<KindEstimate> estimates;
  {
    const native::ReleasedGil release;
    estimates = scheduler.kinds().estimate(stream, list, decode_on, {});
  }
  KindTimes result;
  for (const auto& [kind, time, chosen] : estimates) {
    const std::chrono::duration<double> alone = time.opening + time.decoding;
    result.append(py::make_tuple(kind->backend->name(), kind->engines, alone.count(), chosen));
  }
  return result;
}

// The last owner joins the threads, which may need the GIL to finish.
void end_scheduler(Scheduler* scheduler) {
  if (scheduler->inherited()) return;
  std::optional<native::ReleasedGil> joining;
  if (PyGILState_Check() != 0) joining.emplace();
  std::default_delete<Scheduler>()(scheduler);
}

// What the first bytes of a file tell that is no video, None if nothing.
std::optional<std::string> file_kind(const py::bytes& head) {
  const auto bytes = static_cast<std::string_view>(head);
  const auto kind = kind_of_file({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (!kind) return std::nullopt;
  return kind->text();
}

void bind_bitstream(py::module_& module) {
  module.def("file_kind", &file_kind, py::arg("head"));

  py::class_<Source, SourcePtr>(module, "Source")
      .def_static("descriptor", &open_descriptor, py::arg("fd"), py::arg("name"), Release())
      .def_static("buffer", &open_buffer, py::arg("bytes_like"), py::arg("name"))
      .def_static("file_like", &open_file_like, py::arg("file"), py::arg("name"))
      .def_property_readonly("name", &Source::name);

  py::class_<Limits>(module, "Limits")
      .def(py::init<>())
      .def_readwrite("max_pixels", &Limits::max_pixels)
      .def_readwrite("max_packets", &Limits::max_packets)
      .def_readwrite("max_source_bytes", &Limits::max_source_bytes)
      .def_readwrite("max_analysis_seconds", &Limits::max_analysis_seconds)
      .def_readwrite("max_decode_seconds", &Limits::max_decode_seconds);

  py::class_<Metadata>(module, "Metadata")
      .def_readonly("codec", &Metadata::codec)
      .def_readonly("pixel_format", &Metadata::pixel_format)
      .def_readonly("width", &Metadata::width)
      .def_readonly("height", &Metadata::height)
      .def_readonly("rotation", &Metadata::rotation)
      .def_readonly("duration_from_header", &Metadata::duration_from_header)
      .def_readonly("begin_from_header", &Metadata::begin_from_header)
      .def_readonly("bit_rate", &Metadata::bit_rate)
      .def_readonly("average_fps_from_header", &Metadata::average_fps_from_header)
      .def_readonly("num_frames_from_header", &Metadata::num_frames_from_header)
      .def_readonly("pixel_aspect_ratio", &Metadata::pixel_aspect_ratio)
      .def_readonly("color_primaries", &Metadata::color_primaries)
      .def_readonly("color_space", &Metadata::color_space)
      .def_readonly("color_transfer", &Metadata::color_transfer);

  py::class_<Bitstream, std::shared_ptr<Bitstream>>(module, "Bitstream")
      .def(py::init([](SourcePtr source, int stream_index, const Limits& limits) {
             try {
               const native::ReleasedGil release;
               return std::make_shared<Bitstream>(source, stream_index, limits);
             } catch (const DecodeError&) {
               raise_interruption(*source);
               throw;
             }
           }),
           py::arg("source"), py::arg("stream_index"), py::arg("limits"))
      .def_property_readonly("num_packets", [](const Bitstream& s) { return s.packets().size(); })
      .def_property_readonly("source_name", [](const Bitstream& s) { return s.source()->name(); })
      .def_property_readonly("stream_index", &Bitstream::stream_index)
      .def_property_readonly("scanned", &Bitstream::scanned)
      .def_property_readonly("num_frames", [](const Bitstream& s) { return s.frames().size(); })
      .def_property_readonly("metadata", &Bitstream::metadata, py::return_value_policy::reference_internal)
      .def_property_readonly("doubts",
                             [](const Bitstream& s) {
                               py::typing::List<py::typing::Tuple<py::str, py::str>> doubts;
                               for (const Doubt& doubt : s.doubts()) {
                                 doubts.append(py::make_tuple(doubt.claim, doubt.reason));
                               }
                               return doubts;
                             })
      .def("pts_seconds", &pts_seconds)
      .def("durations_seconds", &durations_seconds)
      .def_property_readonly("bit_depth", &bit_depth)
      .def("end_seconds", [](const Bitstream& s) { return s.seconds(s.end_pts()); })
      .def("key_frames", &key_frames)
      .def("gops",
           [](const Bitstream& s) {
             py::typing::List<py::typing::Tuple<int, int, int, int>> gops;
             for (const Gop& gop : s.gops()) {
               gops.append(py::make_tuple(gop.first_packet, gop.last_packet, gop.first_frame, gop.last_frame));
             }
             return gops;
           })
      .def("plan", &plan, py::arg("frames"), py::arg("group_frames"), py::arg("engines"));
}

void bind_decoding(py::module_& module) {
  py::enum_<LayoutKind>(module, "LayoutKind")
      .value("PATCHES", LayoutKind::kPatches)
      .value("CHW", LayoutKind::kChw)
      .value("HWC", LayoutKind::kHwc)
      .value("TILES", LayoutKind::kTiles)
      .value("RAW", LayoutKind::kRaw)
      .value("HWC16", LayoutKind::kHwc16);
  py::enum_<Interpolation>(module, "Interpolation")
      .value("BICUBIC", Interpolation::kBicubic)
      .value("BILINEAR", Interpolation::kBilinear)
      .value("AREA", Interpolation::kArea);
  py::enum_<Thumbnail>(module, "Thumbnail")
      .value("NONE", Thumbnail::kNone)
      .value("FIRST", Thumbnail::kFirst)
      .value("LAST", Thumbnail::kLast);
  py::class_<Fit>(module, "Fit")
      .def(py::init([](int height, int width, int top, int left, std::array<uint8_t, 3> color, bool square,
                       std::array<int, 4> part) {
             return Fit{height, width, top, left, color, square, {part[0], part[1], part[2], part[3]}};
           }),
           py::arg("height") = 0, py::arg("width") = 0, py::arg("top") = 0, py::arg("left") = 0,
           py::arg("color") = std::array<uint8_t, 3>{}, py::arg("square") = false,
           py::arg("part") = std::array<int, 4>{});

  py::class_<Layout>(module, "Layout")
      .def(py::init([](LayoutKind kind, int height, int width, int patch, int temporal, int merge,
                       Interpolation interpolation, const Fit& fit, int tile, Thumbnail thumbnail) {
             const Layout layout{kind, height, width, patch, temporal, merge, interpolation, fit, tile, thumbnail};
             layout.check();
             return layout;
           }),
           py::arg("kind"), py::arg("height"), py::arg("width"), py::arg("patch_size") = 1,
           py::arg("temporal_patch_size") = 1, py::arg("merge_size") = 1,
           py::arg("interpolation") = Interpolation::kBicubic, py::arg("fit") = Fit{}, py::arg("tile_size") = 1,
           py::arg("thumbnail") = Thumbnail::kNone);

  py::enum_<DecodeOn>(module, "DecodeOn")
      .value("FASTEST", DecodeOn::kFastest)
      .value("CORES", DecodeOn::kCores)
      .value("GPU", DecodeOn::kGpu);

  py::class_<Scheduler, std::shared_ptr<Scheduler>>(module, "Scheduler")
      .def(py::init([](int engines, int64_t memory_limit, const std::vector<int>& gpus) {
             const native::ReleasedGil release;
             EngineKinds kinds(backends_for(gpus), engines);
             return std::shared_ptr<Scheduler>(new Scheduler(std::move(kinds), memory_limit), end_scheduler);
           }),
           py::arg("engines"), py::arg("memory_limit"), py::arg("gpus") = std::vector<int>{})
      .def_property_readonly("fallbacks", &Scheduler::fallbacks)
      .def("close", &Scheduler::close, Release())
      .def("estimate", &estimate, py::arg("bitstream"), py::arg("frames"), py::arg("decode_on"))
      .def_property_readonly("engines", [](const Scheduler& s) { return s.kinds().engines(); });

  py::class_<GpuArray>(module, "GpuArray")
      .def_property_readonly("shape",
                             [](const GpuArray& array) {
                               return py::typing::Tuple<int, py::ellipsis>(py::tuple(py::cast(array.shape())));
                             })
      .def("__dlpack_device__", &GpuArray::device)
      .def("__dlpack__", &GpuArray::dlpack, py::kw_only(), py::arg("stream") = py::none(),
           py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(), py::arg("copy") = py::none());

  py::class_<Output>(module, "Output")
      .def_readonly("request", &Output::request)
      .def_readonly("first", &Output::first)
      .def_readonly("count", &Output::count)
      .def_readonly("engine", &Output::engine)
      .def_property_readonly("began", [](const Output& output) { return seconds(output.began); })
      .def_property_readonly("ended", [](const Output& output) { return seconds(output.ended); })
      .def_readonly("damaged", &Output::damaged)
      .def_readonly("done", &Output::done)
      .def_readonly("gpu", &Output::gpu)
      .def_readonly("decoded_on_gpu", &Output::decoded_on_gpu)
      .def("take_data", &take_data)
      .def("take_gpu_array", &take_gpu_array, py::arg("shape"))
      .def_property_readonly("error", [](const Output& output) {
        return native::NamedObject<"flashcodec.errors.DecodeError | None">(output.error ? to_python(*output.error)
                                                                                        : py::object(py::none()));
      });

  py::class_<Session>(module, "Session")
      .def(py::init<std::shared_ptr<Scheduler>, size_t>(), py::arg("scheduler"), py::arg("output_limit"))
      .def("add", &add, py::arg("bitstream"), py::arg("frames"), py::arg("layout"), py::arg("out") = py::none(),
           py::arg("priority") = 0, py::arg("turn") = py::none(), py::arg("fast") = false,
           py::arg("decode_on") = DecodeOn::kFastest, py::arg("report") = false, py::arg("id") = py::none())
      .def_static("new_id", &Request::next_id)
      .def("take", &take, py::arg("timeout"))
      .def(
          "set_turn", [](Session& session, uint64_t request, double turn) { session.set_turn(request, moment(turn)); },
          py::arg("request"), py::arg("turn"), Release())
      .def("cancel", &Session::cancel, py::arg("request"), Release())
      .def("cancel_all", &Session::cancel_all, Release());
}

std::string version_text(unsigned version) {
  return std::to_string(AV_VERSION_MAJOR(version)) + "." + std::to_string(AV_VERSION_MINOR(version)) + "." +
         std::to_string(AV_VERSION_MICRO(version));
}

py::typing::Dict<py::str, py::str> ffmpeg_versions() {
  py::typing::Dict<py::str, py::str> versions;
  versions["FFmpeg"] = av_version_info();
  versions["libavformat"] = version_text(avformat_version());
  versions["libavcodec"] = version_text(avcodec_version());
  versions["libavutil"] = version_text(avutil_version());
  return versions;
}

// The decoder that is used for a codec, by FFmpeg's names.
std::optional<std::string> decoder_name(const std::string& codec) {
  const AVCodecDescriptor* descriptor = avcodec_descriptor_get_by_name(codec.c_str());
  const AVCodec* decoder = descriptor == nullptr ? nullptr : avcodec_find_decoder(descriptor->id);
  if (decoder == nullptr) return std::nullopt;
  return decoder->name;
}

void bind_ffmpeg(py::module_& module) {
  module.def("ffmpeg_versions", &ffmpeg_versions);
  module.def("decoder_name", &decoder_name, py::arg("codec"));
  // What matters of FFmpeg's messages is in the errors; a command line shows those and nothing else.
  module.def("mute_ffmpeg", [] { av_log_set_level(AV_LOG_QUIET); });
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(std::move(pointer));
    } catch (const DecodeError& error) {
      const py::object instance = to_python(error);
      PyErr_SetObject(py::type::of(instance).ptr(), instance.ptr());
    }
  });
  bind_bitstream(module);
  bind_decoding(module);
  bind_conversion(module);
  bind_images(module);
  bind_ffmpeg(module);
}

}  // namespace flashcodec
