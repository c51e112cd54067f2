#include <pybind11/stl.h>

#include "bindings.h"
#include "collective.h"
#include "native/all_reduce.h"
#include "native/held_bytes.h"
#include "native/interruptible_wait.h"
#include "native/released_gil.h"

namespace py = pybind11;

namespace ipc {
namespace {

// A rank's part in a collective: the mapping, and how far the rank has come.
class CollectiveHandle : public native::AllReduce {
 public:
  CollectiveHandle(std::shared_ptr<Collective> collective, double timeout)
      : identity_(collective->identity()), collective_(std::move(collective)), timeout_(timeout) {}

  bool leads() const override { return get().rank() == 0; }
  void sum(std::span<float> values) override { get().all_reduce(values, native::deadline_after(timeout_)); }

  Collective& get() const {
    if (collective_ == nullptr) throw ArenaError("collective '" + identity_.name + "': this handle is closed");
    return *collective_;
  }
  const std::string& name() const { return identity_.name; }
  void close() { collective_.reset(); }

 private:
  ArenaIdentity identity_;
  std::shared_ptr<Collective> collective_;
  double timeout_;
};

// The values of a writable buffer of whole ones.
template <typename Value>
std::span<Value> values_of(const native::WritableBytes& bytes) {
  const auto span = bytes.span();
  if (span.size() % sizeof(Value) != 0 || reinterpret_cast<std::uintptr_t>(span.data()) % sizeof(Value) != 0) {
    throw std::invalid_argument("a buffer of " + std::to_string(span.size()) + " bytes holds no whole values");
  }
  return {reinterpret_cast<Value*>(span.data()), span.size() / sizeof(Value)};
}

void all_reduce(const CollectiveHandle& self, const native::BytesLike& values, const std::string& dtype,
                double timeout) {
  const native::WritableBytes bytes(values);
  const auto deadline = native::deadline_after(timeout);
  const auto reduce = [&](auto span) {
    auto& collective = self.get();
    const native::ReleasedGil released;
    collective.all_reduce(span, deadline);
  };
  if (dtype == "float32") {
    reduce(values_of<float>(bytes));
  } else if (dtype == "bfloat16") {
    reduce(values_of<Bfloat16>(bytes));
  } else {
    throw std::invalid_argument("all_reduce adds up float32 and bfloat16, not " + dtype);
  }
}

void all_gather(const CollectiveHandle& self, const native::BytesLike& own, const native::BytesLike& all,
                double timeout) {
  const native::HeldBytes source(own);
  const native::WritableBytes target(all);
  auto& collective = self.get();
  const auto deadline = native::deadline_after(timeout);
  const native::ReleasedGil released;
  collective.all_gather(source.span(), target.span(), deadline);
}

void gather(const CollectiveHandle& self, std::size_t root, const native::BytesLike& own,
            const std::optional<native::BytesLike>& all, double timeout) {
  const native::HeldBytes source(own);
  std::optional<native::WritableBytes> target;
  if (all) target.emplace(*all);
  auto& collective = self.get();
  const auto deadline = native::deadline_after(timeout);
  const native::ReleasedGil released;
  collective.gather(root, source.span(), target ? target->span() : std::span<std::byte>(), deadline);
}

void broadcast(const CollectiveHandle& self, std::size_t root, const native::BytesLike& bytes, double timeout) {
  const native::WritableBytes target(bytes);
  auto& collective = self.get();
  const auto deadline = native::deadline_after(timeout);
  const native::ReleasedGil released;
  collective.broadcast(root, target.span(), deadline);
}

void barrier(const CollectiveHandle& self, double timeout) {
  auto& collective = self.get();
  const auto deadline = native::deadline_after(timeout);
  const native::ReleasedGil released;
  collective.barrier(deadline);
}

}  // namespace

void bind_collective(py::module_& module) {
  const py::class_<native::AllReduce> base(module, "AllReduce",
                                           "What sums up values over processes for the code of another core.");
  py::class_<CollectiveHandle, native::AllReduce>(
      module, "Collective",
      R"(Operations that all ranks of a group do together, through shared memory.

Each process is one rank, from one thread at a time, and all do the same operations in the same order. Sums are taken in
the order of the ranks in float32, so that each rank gets the same bits whatever the timing. Every operation raises
CollectiveError, which names a rank, if that rank does not come within `timeout` seconds.)")
      .def_static(
          "create",
          [](const std::string& name, std::int64_t ranks, std::int64_t slot_bytes) {
            const native::ReleasedGil released;
            return Handle<Arena>(Collective::create(name, ranks, slot_bytes));
          },
          py::arg("name"), py::arg("ranks"), py::arg("slot_bytes") = std::int64_t{1} << 20,
          R"(Create the shared memory of up to 64 ranks, and return it as an arena, to be unlinked in the end.

Each rank has two slots of `slot_bytes`, from 1 to 2**30; larger operands go in pieces. Raises as `Arena.create`.)")
      .def_static(
          "join",
          [](const std::string& name, std::int64_t rank, double timeout) {
            auto collective = std::make_shared<Collective>(Arena::attach(name, ArenaKind::collective), rank);
            return std::make_unique<CollectiveHandle>(std::move(collective), timeout);
          },
          py::arg("name"), py::arg("rank"), py::arg("timeout") = 60.0,
          R"(Become a rank, which nobody has been before; raises ValueError otherwise, and as `Arena.attach`.

As an `AllReduce` it waits `timeout` seconds for the others, and its rank 0 adds what is common to all.)")
      .def_property_readonly("name", &CollectiveHandle::name)
      .def_property_readonly("rank", [](const CollectiveHandle& self) { return self.get().rank(); })
      .def_property_readonly("ranks", [](const CollectiveHandle& self) { return self.get().ranks(); })
      .def("all_reduce", &all_reduce, py::arg("values"), py::arg("dtype"), py::arg("timeout") = 60.0,
           R"(Replace a contiguous, writable buffer by the sums over all ranks; `dtype` is "float32" or "bfloat16".

Sums of bfloat16 are rounded once, to the nearest.)")
      .def("all_gather", &all_gather, py::arg("own"), py::arg("all"), py::arg("timeout") = 60.0,
           "Fill a writable buffer with the bytes of all ranks, in their order; raises ValueError if its size is "
           "another.")
      .def("gather", &gather, py::arg("root"), py::arg("own"), py::arg("all") = py::none(), py::arg("timeout") = 60.0,
           "Fill the writable buffer `all` of the rank `root` as `all_gather` does; the other ranks give none.")
      .def("broadcast", &broadcast, py::arg("root"), py::arg("values"), py::arg("timeout") = 60.0,
           "Replace a writable buffer by that of the rank `root`.")
      .def("barrier", &barrier, py::arg("timeout") = 60.0, "Wait until all ranks have come.")
      .def("close", &CollectiveHandle::close, "Give up this handle's mapping. Idempotent.");
}

}  // namespace ipc
