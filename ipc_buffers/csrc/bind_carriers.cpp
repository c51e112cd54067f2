#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bell.h"
#include "bind_arrays.h"
#include "bindings.h"
#include "native/held_bytes.h"
#include "native/released_gil.h"
#include "net/page_client.h"
#include "net/page_server.h"
#include "page_copier.h"

namespace py = pybind11;

namespace ipc {
namespace {

using net::Descriptor;
using net::PageClient;
using net::PageServer;
using net::Socket;
using NamedPools = std::map<std::string, Handle<PagePool>>;
using ServedPools = std::vector<std::pair<std::string, std::optional<const Handle<PagePool>*>>>;
// A pool's name; pages of the source, their epochs, and pages of the reader.
using CopyArguments = std::tuple<std::string, Pages, Epochs, Pages>;
using Told = std::tuple<std::uint64_t, std::string, std::uint64_t, double>;

PoolTable table_of(const NamedPools& named) {
  PoolTable table;
  for (const auto& [name, pool] : named) table.emplace(name, pool.get());
  return table;
}

std::vector<std::int32_t> numbers_of(const Pages& pages) {
  const auto numbers = page_numbers(pages);
  const auto span = span_of(numbers);
  return {span.begin(), span.end()};
}

std::vector<PageCopy> copies_of(const std::vector<CopyArguments>& arguments) {
  std::vector<PageCopy> copies;
  copies.reserve(arguments.size());
  for (const auto& [pool, source, epochs, into] : arguments) {
    copies.push_back({pool, numbers_of(source), {epochs.data(), epochs.data() + epochs.size()}, numbers_of(into)});
  }
  return copies;
}

std::vector<Told> told(std::vector<Done>&& done) {
  std::vector<Told> all;
  all.reserve(done.size());
  for (auto& [transfer, error, bytes, seconds] : done) all.emplace_back(transfer, std::move(error), bytes, seconds);
  return all;
}

// What all that read pages have in common.
template <typename Reader>
void bind_reader(py::class_<Reader>& reader) {
  reader
      .def(
          "poll", [](Reader& self) { return told(self.completions().take()); },
          R"(Return (transfer, error, bytes, seconds) of those that have ended since the last call.

The error is empty if all pages are there as they were in their epochs.)")
      .def("close", &Reader::close, py::arg("transfer"), py::call_guard<native::ReleasedGil>(),
           "Drop a transfer, under way or not: nothing is written to its pages, and nothing told of it, after this.")
      .def("shut", &Reader::shut, py::call_guard<native::ReleasedGil>(),
           "Drop all transfers and end the threads. Idempotent.");
}

void bind_copier(py::module_& module) {
  py::class_<PageCopier> copier(
      module, "PageCopier",
      R"(Copies pages from pools that are mapped here into one's own, in threads without the GIL.

Both are in host memory, or both on GPUs. Their owner need not know, and may give pages away meanwhile: epochs tell. The
bell is rung when `poll` has something to tell.)");
  copier.def(py::init<Bell, int>(), py::arg("bell"), py::arg("threads") = 1)
      .def(
          "read",
          [](PageCopier& self, const NamedPools& sources, const NamedPools& own,
             const std::vector<CopyArguments>& copies) {
            const auto from = table_of(sources), to = table_of(own);
            const auto wanted = copies_of(copies);
            const native::ReleasedGil released;
            return self.read(from, to, wanted);
          },
          py::arg("sources"), py::arg("own"), py::arg("copies"),
          R"(Begin to copy, and return the transfer's number.

A copy is (pool, source pages, their epochs, pages of one's own). Raises ValueError for pools that are not one's own or
counts that differ, PageError for pages of one's own that are free or out of range, ArenaError for what is wrong with the
source: pools or pages that it does not have, pages of another size, a place where nothing leads from.)");
  bind_reader(copier);
}

void bind_bell(py::module_& module) {
  py::class_<Bell>(module, "Bell", "Wakes whoever waits for messages of a queue, by one that says so.")
      .def(py::init([](const Handle<MessageQueue>& queue, const native::BytesLike& message) {
             const native::HeldBytes bytes(message);
             return Bell(queue.get(), {bytes.span().begin(), bytes.span().end()});
           }),
           py::arg("queue"), py::arg("message"), "Raises MessageTooLarge, and ArenaError if the queue is closed.")
      .def("ring", &Bell::ring, py::call_guard<native::ReleasedGil>(),
           "Send the message, unless the queue is full: then its reader does not sleep. Any thread may call it.");
}

// Takes over a descriptor that Python has given up.
Socket adopt(int descriptor) { return Socket(Descriptor(descriptor)); }

void bind_server(py::module_& module) {
  py::class_<PageServer>(module, "PageServer",
                         R"(Lets others read pages over TCP, straight from the pools, in a thread without the GIL.

`patience` is how many seconds a client may take to send a request, or to receive a frame of a megabyte. Nobody can keep
the others from being served.)")
      .def(py::init<double>(), py::arg("patience") = 10.0, "Raises ValueError for a patience that is none.")
      .def(
          "serve",
          [](PageServer& self, int client, const ServedPools& pools) {
            auto socket = adopt(client);
            std::vector<net::ServedPool> served;
            for (const auto& [name, pool] : pools) served.push_back({name, pool ? (*pool)->get() : nullptr});
            self.serve(std::move(socket), std::move(served));
          },
          py::arg("client"), py::arg("pools"),
          R"(Serve a client that was introduced, over a descriptor, which is closed with the connection.

`pools` are (name, pool, or None for one that is not here), in the order in which the client numbers them. Raises
NetError if there are too many clients, ArenaError for a pool on a GPU.)")
      .def("shut", &PageServer::shut, py::call_guard<native::ReleasedGil>(),
           "End the thread and all connections: nothing is read from the pools after this. Idempotent.");
}

void bind_client(py::module_& module) {
  py::class_<PageClient> client(module, "PageClient",
                                R"(Reads pages from servers over TCP, straight into pools, in a thread without the GIL.

It has any number of transfers under way on a connection to each server, which somebody else makes. The bell is rung
when `poll` has something to tell. `patience` is how many seconds a server may take to answer, or for a frame of a
megabyte.)");
  client
      .def(py::init<Bell, double>(), py::arg("bell"), py::arg("patience") = 10.0,
           "Raises ValueError for a patience that is none.")
      .def(
          "use", [](PageClient& self, const NamedPools& pools) { self.use(table_of(pools)); }, py::arg("pools"),
          "Have these pools read into; to be called once, before `read`. Raises ArenaError for one on a GPU.")
      .def(
          "read",
          [](PageClient& self, const std::string& server, const std::vector<CopyArguments>& copies) {
            const auto wanted = copies_of(copies);
            const native::ReleasedGil released;
            const auto [transfer, is_first] = self.read(server, wanted);
            return std::pair(transfer, is_first);
          },
          py::arg("server"), py::arg("copies"),
          R"(Begin to read from a server; return the transfer's number, and whether `connect` or `fail` must follow.

Any text tells servers apart. A copy is (pool, source pages, their epochs, pages of one's own). Raises ValueError for
pools that are not in use here, PageError for pages of one's own that are free or out of range; whatever is wrong with
the server is told by `poll`.)")
      .def(
          "connect",
          [](PageClient& self, const std::string& server, std::string name, int connected) {
            self.connect(server, std::move(name), adopt(connected));
          },
          py::arg("server"), py::arg("name"), py::arg("connected"), py::call_guard<native::ReleasedGil>(),
          "Ask a server that was introduced for what waits, over a descriptor, which is closed with the connection.")
      .def("fail", &PageClient::fail, py::arg("server"), py::arg("why"), py::call_guard<native::ReleasedGil>(),
           "End all transfers from a server that could not be connected to, with one line that says why.");
  bind_reader(client);
}

}  // namespace

void bind_carriers(py::module_& module) {
  bind_bell(module);
  bind_copier(module);
  bind_server(module);
  bind_client(module);
}

}  // namespace ipc
