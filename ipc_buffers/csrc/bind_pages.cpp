#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <limits>

#include "bind_arrays.h"
#include "bindings.h"
#include "native/named_object.h"
#include "native/released_gil.h"
#include "page_pool.h"
#include "paged_buffer.h"

namespace py = pybind11;

namespace ipc {
namespace {

using PoolHandle = Handle<PagePool>;
using Index = native::NamedObject<"ipc_buffers.page_index.PageIndex">;

std::uint32_t checked(const char* field, std::int64_t value, std::int64_t largest) {
  if (value < 0 || value > largest) {
    throw std::invalid_argument(std::string(field) + " must be between 0 and " + std::to_string(largest) + ", got " +
                                std::to_string(value));
  }
  return static_cast<std::uint32_t>(value);
}

std::uint32_t checked_request(std::int64_t request) {
  return checked("request", request, std::numeric_limits<std::uint32_t>::max());
}

std::uint32_t checked_instance(std::int64_t instance) { return checked("instance", instance, PagePool::kMaxInstance); }

std::optional<Int32Array> allocate(const PoolHandle& self, std::int64_t count, std::int64_t request,
                                   std::int64_t instance) {
  const auto pool = self.get();
  const PageOwner owner{checked_request(request), checked_instance(instance)};
  if (count < 0) throw std::invalid_argument("cannot allocate " + std::to_string(count) + " pages");
  if (static_cast<std::size_t>(count) > pool->num_pages()) return std::nullopt;
  Int32Array pages(count);
  if (!pool->allocate({pages.mutable_data(), static_cast<std::size_t>(count)}, owner)) return std::nullopt;
  return pages;
}

std::size_t reclaim(const PoolHandle& self, std::optional<std::int64_t> request, std::optional<std::int64_t> instance) {
  if (!request && !instance) throw std::invalid_argument("reclaim() needs a request, an instance or both");
  const auto pool = self.get();
  const auto of_request = request ? std::optional(checked_request(*request)) : std::nullopt;
  const auto of_instance = instance ? std::optional(checked_instance(*instance)) : std::nullopt;
  const native::ReleasedGil released;
  return pool->reclaim(of_request, of_instance);
}

std::span<const std::uint64_t> epochs_of(const Int32Array& pages, const Epochs& epochs) {
  if (epochs.size() != pages.size()) {
    throw std::invalid_argument(std::to_string(pages.size()) + " pages with " + std::to_string(epochs.size()) +
                                " epochs");
  }
  return {epochs.data(), static_cast<std::size_t>(epochs.size())};
}

Epochs remember(const PoolHandle& self, const Pages& pages) {
  const auto epochs = self.get()->remember(span_of(page_numbers(pages)));
  return Epochs(static_cast<py::ssize_t>(epochs.size()), epochs.data());
}

Epochs epochs(const PoolHandle& self, const Pages& pages) {
  const auto found = self.get()->epochs(span_of(page_numbers(pages)));
  return Epochs(static_cast<py::ssize_t>(found.size()), found.data());
}

py::memoryview epoch_words(const PoolHandle& self) {
  const auto pool = self.get();
  const auto words = pool->epoch_words();
  // Whoever looks at them keeps the pool; they are for reading, whatever a view allows.
  return view_of({pool, {const_cast<std::byte*>(words.data()), words.size()}});  // NOLINT
}

std::size_t recall(const PoolHandle& self, const Pages& pages, const Epochs& epochs, std::int64_t request,
                   std::int64_t instance) {
  const auto numbers = page_numbers(pages);
  const PageOwner owner{checked_request(request), checked_instance(instance)};
  return self.get()->recall(span_of(numbers), epochs_of(numbers, epochs), owner);
}

std::pair<Int32Array, Epochs> shared(const PoolHandle& self) {
  const auto found = self.get()->shared();
  Int32Array pages(static_cast<py::ssize_t>(found.size()));
  Epochs words(static_cast<py::ssize_t>(found.size()));
  for (std::size_t i = 0; i < found.size(); ++i) {
    pages.mutable_data()[i] = found[i].page;
    words.mutable_data()[i] = found[i].word;
  }
  return {pages, words};
}

std::size_t settle(const PoolHandle& self, std::int64_t request, const Pages& pages) {
  return self.get()->settle(checked_request(request), span_of(page_numbers(pages)));
}

bool correct(const PoolHandle& self, std::int32_t page, std::uint64_t word, std::uint32_t references) {
  return self.get()->correct({page, word}, references);
}

std::pair<std::size_t, std::size_t> renew(const PoolHandle& self, const Pages& pages, const Epochs& epochs) {
  const auto numbers = page_numbers(pages);
  const auto found = self.get()->renew(span_of(numbers), epochs_of(numbers, epochs));
  return {found.pages, found.in_use};
}

std::optional<std::pair<std::uint32_t, std::uint32_t>> owner(const PoolHandle& self, std::int64_t page) {
  const auto owner = self.get()->owner(page);
  if (!owner) return std::nullopt;
  return std::pair(owner->request, owner->instance);
}

// The arrays of a Python PageIndex, held while C++ looks at them.
class HeldIndex {
 public:
  explicit HeldIndex(const py::object& index)
      : indptr_(array(index, "pv_indptr")),
        page_indptr_(array(index, "pv_page_indptr")),
        pages_(array(index, "pv_page_indices")),
        cu_page_len_(array(index, "pv_cu_page_len")) {}

  PageIndexView view() const {
    return {span_of(indptr_), span_of(page_indptr_), span_of(pages_), span_of(cu_page_len_)};
  }

 private:
  static Int32Array array(const py::object& index, const char* field) {
    const py::object value = index.attr(field);
    if (!py::isinstance<Int32Array>(value) || py::reinterpret_borrow<py::array>(value).ndim() != 1) {
      throw py::type_error(std::string(field) + " must be a contiguous int32 array of one dimension");
    }
    return py::reinterpret_borrow<Int32Array>(value);
  }

  Int32Array indptr_, page_indptr_, pages_, cu_page_len_;
};

bool is_contiguous(const py::array& array) { return (array.flags() & py::array::c_style) != 0; }

void write_rows(PagedBuffer& self, const Index& index, const py::array& rows) {
  const auto count = rows.ndim() == 0 ? 0 : static_cast<std::size_t>(rows.shape(0));
  if (rows.ndim() == 0 || !is_contiguous(rows) || static_cast<std::size_t>(rows.nbytes()) != count * self.row_bytes()) {
    throw std::invalid_argument("rows must be a C-contiguous array of [n, " + std::to_string(self.row_bytes()) +
                                " bytes], got " + std::to_string(rows.nbytes()) + " bytes in " + std::to_string(count) +
                                " rows");
  }
  const auto plan = self.plan_write(HeldIndex(index).view(), count);
  const auto* source = static_cast<const std::byte*>(rows.data());
  const native::ReleasedGil released;
  self.write(plan, source);
}

py::array output_array(std::optional<py::array> out, std::size_t rows, std::size_t row_bytes) {
  if (!out) return py::array_t<std::uint8_t>({rows, row_bytes});
  if (!is_contiguous(*out) || !out->writeable() || static_cast<std::size_t>(out->nbytes()) != rows * row_bytes) {
    throw std::invalid_argument("out must be a writable C-contiguous array of " + std::to_string(rows) + " x " +
                                std::to_string(row_bytes) + " bytes, got " + std::to_string(out->nbytes()) + " bytes");
  }
  return *out;
}

py::array read_rows(const PagedBuffer& self, const Index& index, std::int64_t request, std::int64_t start,
                    std::int64_t stop, std::optional<py::array> out) {
  const auto plan = self.plan_read(HeldIndex(index).view(), request, start, stop);
  auto rows = output_array(std::move(out), static_cast<std::size_t>(stop - start), self.row_bytes());
  auto* target = static_cast<std::byte*>(rows.mutable_data());
  {
    const native::ReleasedGil released;
    self.read(plan, target);
  }
  return rows;
}

}  // namespace

void bind_page_pool(py::module_& module) {
  py::class_<PoolHandle>(module, "PagePool",
                         R"(Fixed-size pages, used by many processes at once without a lock.

Who owns them is told in host memory; what they hold is a `Memory`, there or on a GPU: of the pool's own, under the same
name, or one that outlives it (`over`).
A page knows its owner, so whatever a dead process held can be found and freed by `reclaim`. `pages` arguments are
array-likes of integers, of any shape.)")
      .def_static(
          "create",
          [](const std::string& name, std::int64_t num_pages, std::int64_t page_bytes, const std::string& place) {
            const native::ReleasedGil released;
            return PoolHandle(PagePool::create(name, num_pages, page_bytes, Place::parse(place)));
          },
          py::arg("name"), py::arg("num_pages"), py::arg("page_bytes"), py::arg("place") = "host",
          "Create a pool with its pages at a place; raises as `Memory.create`, and ValueError for counts or sizes out "
          "of "
          "range.")
      .def_static(
          "over",
          [](const std::string& name, const Handle<Memory>& memory, std::int64_t page_bytes) {
            auto data = memory.get();
            const native::ReleasedGil released;
            return PoolHandle(PagePool::over(name, std::move(data), page_bytes));
          },
          py::arg("name"), py::arg("memory"), py::arg("page_bytes"),
          R"(Create a pool whose pages are those of a memory, which keeps its contents, its name and a life of its own.

All pages are free, and their epochs begin anew. So a pool is renewed by closing and unlinking it and laying another
over the same memory; handles of the old one know nothing of the new one, and must not write to pages any more.
Raises ArenaError if the name is in use or /dev/shm has no room; ValueError for a bad name, a memory that is no whole
number of pages, or one that is a pool's own.)")
      .def_static(
          "attach",
          [](const std::string& name) {
            const native::ReleasedGil released;
            return PoolHandle(PagePool::attach(name));
          },
          py::arg("name"), "Map a pool of another handle, by name, and its memory; raises as `Memory.attach`.")
      .def_property_readonly("name", &PoolHandle::name)
      .def_property_readonly(
          "inode", [](const PoolHandle& self) { return self.get()->identity().inode; },
          "What tells this pool from others of its name, earlier or later ones.")
      .def_property_readonly("num_pages", [](const PoolHandle& self) { return self.get()->num_pages(); })
      .def_property_readonly("page_bytes", [](const PoolHandle& self) { return self.get()->page_bytes(); })
      .def(
          "allocate", &allocate, py::arg("count"), py::arg("request"), py::arg("instance") = 0,
          R"(Return int32[count] page numbers with one reference each, tagged with their owner; None if not enough are free.

Callers that race for the last pages may all get None. Raises ValueError unless 0 <= request < 2**32 and
0 <= instance < 4095.)")
      .def(
          "retain",
          [](const PoolHandle& self, const Pages& pages) { self.get()->retain(span_of(page_numbers(pages))); },
          py::arg("pages"),
          "Add a reference to each page; if one is free or out of range, to none of them, and raise PageError.")
      .def(
          "release",
          [](const PoolHandle& self, const Pages& pages) { return self.get()->release(span_of(page_numbers(pages))); },
          py::arg("pages"), R"(Drop a reference of each page; return how many became free.

Raises PageError if a page is free or out of range. Nothing is released then, unless the array repeats a page more often
than it has references: those before it are.)")
      .def("reclaim", &reclaim, py::arg("request") = py::none(), py::arg("instance") = py::none(),
           "Free all pages of the owner, whatever their references; return how many. Raises ValueError without an "
           "owner.")
      .def("settle", &settle, py::arg("request"), py::arg("pages"),
           R"(Give each page of a request as many references as it has places in `pages`, none of which frees it.

Pages of others and shared ones stay as they are. For a request whose holder has died. Returns how many became free;
raises PageError for a page out of range.)")
      .def(
          "requests", [](const PoolHandle& self) { return self.get()->requests(); },
          "Return the requests that own pages, ascending; pages that several share belong to none.")
      .def("shared", &shared,
           R"(Return the pages that several requests share, int32[n], and the word of each, uint64[n].

A word changes with each reference that is added or dropped; see `correct`.)")
      .def(
          "correct", &correct, py::arg("page"), py::arg("word"), py::arg("references"),
          R"(Give a shared page so many references, as its holders were counted; none frees it, and what it holds stays known.

Returns False, and does nothing, if its word is another one by now, or tells of fewer. Raises PageError for a page out of
range.)")
      .def("remember", &remember, py::arg("pages"),
           R"(Return the epochs of pages that the caller holds a reference of, for `recall`.

What they hold is from now on worth keeping when they are free: they are taken anew last, those unused for longest
before the others, and of pages released together the later ones first. Raises PageError for a free page or one out of
range.)")
      .def("epochs", &epochs, py::arg("pages"),
           R"(Return the epochs that pages are in, whoever holds them or nobody; nothing becomes worth keeping by it.

Who has read pages without a reference compares these with the epochs in which they held what was wanted: where they are
equal, what was read before this call is what they held. Raises PageError for a page out of range.)")
      .def("epoch_words", &epoch_words,
           "Return the epochs of all pages, uint64 each as they lie in shared memory; only to be read.")
      .def("recall", &recall, py::arg("pages"), py::arg("epochs"), py::arg("request"), py::arg("instance") = 0,
           R"(Add a reference to the leading pages that have not been taken anew since `remember`; return how many.

A free one becomes the given owner's; one in use belongs to request 0 from now on, so that `reclaim` takes it from
nobody. Raises PageError for a page out of range, ValueError as `allocate`.)")
      .def("renew", &renew, py::arg("pages"), py::arg("epochs"),
           R"(Return how many leading pages `recall` would find now, and how many of these are in use.

They count as used just now. Raises PageError for a page out of range.)")
      .def("owner", &owner, py::arg("page"),
           "Return (request, instance), or None if the page is free. Raises PageError if it is out of range.")
      .def(
          "references", [](const PoolHandle& self, std::int64_t page) { return self.get()->references(page); },
          py::arg("page"), "Return a page's references, 0 if it is free. Raises PageError if it is out of range.")
      .def("free_pages", [](const PoolHandle& self) { return self.get()->free_pages(); })
      .def(
          "remembered_pages", [](const PoolHandle& self) { return self.get()->remembered_pages(); },
          "Return the free pages whose contents are worth keeping; `free_pages` counts them too.")
      .def("used_pages",
           [](const PoolHandle& self) {
             const auto pool = self.get();
             return pool->num_pages() - pool->free_pages();
           })
      .def_property_readonly(
          "memory", [](const PoolHandle& self) { return Handle<Memory>(self.get()->data()); },
          "A handle of all pages, num_pages * page_bytes bytes.")
      .def(
          "data",
          [](const PoolHandle& self) {
            auto memory = self.get()->data();
            const auto bytes = memory->host_bytes();
            return view_of({std::move(memory), bytes});
          },
          R"(Return all pages, page-aligned in host memory, without a copy; the view keeps them mapped.

Raises ArenaError if they are on a GPU: `memory` gives a view there.)")
      .def("close", &close_without_gil<PagePool>)
      .def("unlink", &PoolHandle::unlink,
           "Remove the name, if it still is this pool's; that of a memory it was laid over stays.");
}

void bind_paged_buffer(py::module_& module) {
  py::class_<PagedBuffer>(module, "PagedBuffer",
                          R"(Rows of a fixed size over a page pool; passive: allocating pages is the caller's business.

They are copied by the processor: ArenaError is raised for a pool on a GPU.
All methods check every bound before they touch memory: ValueError for an index that contradicts itself or its rows,
IndexError for a request or rows outside it, PageError for pages that are free or out of range.)")
      .def(py::init([](const PoolHandle& pool, std::int64_t row_bytes) { return PagedBuffer(pool.get(), row_bytes); }),
           py::arg("pool"), py::arg("row_bytes"))
      .def_property_readonly("rows_per_page", &PagedBuffer::rows_per_page)
      .def_property_readonly("row_bytes", &PagedBuffer::row_bytes)
      .def("pages_for", &PagedBuffer::pages_for, py::arg("rows"), "Return the pages that `rows` rows fill.")
      .def("write", &write_rows, py::arg("index"), py::arg("rows"),
           "Copy a flattened batch, C-contiguous [n, row_bytes] in bytes of any dtype, to its pages.")
      .def("read", &read_rows, py::arg("index"), py::arg("request"), py::arg("start"), py::arg("stop"),
           py::arg("out") = py::none(), R"(Copy rows [start, stop) of one request, counted from its first.

Returns uint8 [stop - start, row_bytes], or `out`, C-contiguous and of just as many bytes.)")
      .def(
          "consume",
          [](PagedBuffer& self, const Index& index, std::int64_t request, std::int64_t start, std::int64_t stop) {
            return self.consume(HeldIndex(index).view(), request, start, stop);
          },
          py::arg("index"), py::arg("request"), py::arg("start"), py::arg("stop"),
          R"(Release the request's pages that [start, stop) finishes: those whose last row lies in it.

So pages with a row at or behind `stop` stay, and consecutive calls release each page once. Returns how many pages
became free.)");
}

}  // namespace ipc
