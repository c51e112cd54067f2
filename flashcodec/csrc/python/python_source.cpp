#include "python/python_source.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "native/held_bytes.h"
#include "source/decode_error.h"

namespace py = pybind11;

namespace flashcodec {

namespace {

class FileLikeSource : public Source {
 public:
  FileLikeSource(py::object file, std::string name) : file_(std::move(file)), name_(std::move(name)) {
    const py::object end = file_.attr("seek")(0, 2);
    if (PyIndex_Check(end.ptr()) == 0) throw py::type_error("seek() of the file object did not return a position");
    size_ = end.cast<int64_t>();
  }
  ~FileLikeSource() override {
    const py::gil_scoped_acquire gil;
    file_.release().dec_ref();
  }
  FileLikeSource(const FileLikeSource&) = delete;
  FileLikeSource& operator=(const FileLikeSource&) = delete;

  // Throws what has interrupted a call of the file, such as KeyboardInterrupt. To be called with the GIL.
  void raise_interruption() {
    if (interruption_) std::rethrow_exception(std::exchange(interruption_, nullptr));
  }

  const std::string& name() const override { return name_; }
  int64_t size() const override { return size_; }

  size_t read_at(int64_t offset, std::span<uint8_t> out) override {
    const std::lock_guard lock(mutex_);  // before the GIL, which Python code may let go of
    const py::gil_scoped_acquire gil;
    try {
      file_.attr("seek")(offset, 0);
      const py::object data = file_.attr("read")(out.size());
      if (!py::isinstance<py::bytes>(data))
        throw DecodeError(name_, -1, "read() of the file object did not return bytes", ErrorKind::kSource, offset);
      const auto view = data.cast<std::string_view>();
      const size_t count = std::min(view.size(), out.size());
      std::memcpy(out.data(), view.data(), count);
      return count;
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_Exception)) interruption_ = std::current_exception();
      throw DecodeError(name_, -1, std::string("reading the file object failed: ") + error.what(), ErrorKind::kSource,
                        offset);
    }
  }

 private:
  py::object file_;
  std::string name_;
  int64_t size_ = 0;
  std::mutex mutex_;
  std::exception_ptr interruption_;
};

}  // namespace

SourcePtr open_buffer(const py::object& bytes_like, std::string name) {
  auto held = std::make_shared<native::HeldBytes>(bytes_like);
  const auto bytes = held->span();
  return open_memory({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, std::move(held), std::move(name));
}

SourcePtr open_file_like(py::object file, std::string name) {
  return std::make_shared<FileLikeSource>(std::move(file), std::move(name));
}

void raise_interruption(Source& source) {
  if (auto* file = dynamic_cast<FileLikeSource*>(&source)) file->raise_interruption();
}

}  // namespace flashcodec
