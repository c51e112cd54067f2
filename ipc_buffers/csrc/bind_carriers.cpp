#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind_arrays.h"
#include "bindings.h"
#include "native/released_gil.h"
#include "net/page_client.h"
#include "net/page_server.h"
#include "page_copier.h"

namespace py = pybind11;

namespace ipc {
namespace {

using net::PageClient;
using net::PageServer;
using NamedPools = std::map<std::string, Handle<PagePool>>;
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
      .def(
          "wait", [](Reader& self) { return self.completions().wait(); }, py::call_guard<native::ReleasedGil>(),
          R"(Wait until a transfer has ended since the last wait, and return True; False once it is shut.

For a thread of its own: no signal interrupts it.)")
      .def("close", &Reader::close, py::arg("transfer"), py::call_guard<native::ReleasedGil>(),
           "Drop a transfer, under way or not: nothing is written to its pages, and nothing told of it, after this.")
      .def("shut", &Reader::shut, py::call_guard<native::ReleasedGil>(),
           "Drop all transfers and end the threads. Idempotent.");
}

void bind_copier(py::module_& module) {
  py::class_<PageCopier> copier(
      module, "PageCopier",
      R"(Copies pages from pools that are mapped here into one's own, in threads without the GIL.

Both are in host memory, or both on GPUs. Their owner need not know, and may give pages away meanwhile: epochs tell.)");
  copier.def(py::init<int>(), py::arg("threads") = 1)
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

void bind_server(py::module_& module) {
  py::class_<PageServer>(module, "PageServer",
                         R"(Lets others read pages over TCP, straight from the pools, in a thread without the GIL.

Only who shows that he has the token is served, and nobody can keep the others from it. `token` is 64 hexadecimal
digits; `description` says in one line what pages mean, which must be the same on both sides; `patience` is how many
seconds a client may take to introduce himself, to send a request or to receive a frame of a megabyte.)")
      .def(py::init<const std::string&, std::uint16_t, const std::string&, std::string, double>(), py::arg("host"),
           py::arg("port"), py::arg("token"), py::arg("description"), py::arg("patience") = 10.0,
           R"(Listen at once; port 0 is any that is free.

Raises NetError if the port is in use or the address is none of this machine, ValueError for a token or a description
that is none.)")
      .def_property_readonly("port", &PageServer::port)
      .def_property_readonly("incarnation", &PageServer::incarnation,
                             "What tells this server from earlier and later ones at its port.")
      .def(
          "serve", [](PageServer& self, const NamedPools& pools) { self.serve(table_of(pools)); }, py::arg("pools"),
          "Let those who come from now on read these pools; raises ArenaError for one on a GPU.")
      .def("turned_away", &PageServer::turned_away, "Return why others were turned away lately, and forget it.")
      .def("shut", &PageServer::shut, py::call_guard<native::ReleasedGil>(),
           "End the thread and all connections: nothing is read from the pools after this. Idempotent.");
}

void bind_client(py::module_& module) {
  py::class_<PageClient> client(module, "PageClient",
                                R"(Reads pages from servers over TCP, straight into pools, in a thread without the GIL.

It keeps a connection to each server, makes it anew when it has broken, and has any number of transfers under way.
`patience` is how many seconds a server may take to answer, or for a frame of a megabyte.)");
  client
      .def(py::init<const std::string&, std::string, double>(), py::arg("token"), py::arg("description"),
           py::arg("patience") = 10.0, "Raises ValueError for a token or a description that is none.")
      .def(
          "use", [](PageClient& self, const NamedPools& pools) { self.use(table_of(pools)); }, py::arg("pools"),
          "Have these pools read into; to be called once, before `read`. Raises ArenaError for one on a GPU.")
      .def(
          "read",
          [](PageClient& self, std::string host, std::uint16_t port, std::uint64_t incarnation,
             const std::vector<CopyArguments>& copies) {
            const auto wanted = copies_of(copies);
            const net::ServerAddress server{std::move(host), port, incarnation};
            const native::ReleasedGil released;
            return self.read(server, wanted);
          },
          py::arg("host"), py::arg("port"), py::arg("incarnation"), py::arg("copies"),
          R"(Begin to read from a server at a numeric address, and return the transfer's number.

A copy is (pool, source pages, their epochs, pages of one's own). Raises ValueError for pools that are not in use here,
PageError for pages of one's own that are free or out of range; whatever is wrong with the server is told by `poll`.)");
  bind_reader(client);
}

}  // namespace

void bind_carriers(py::module_& module) {
  bind_copier(module);
  bind_server(module);
  bind_client(module);
}

}  // namespace ipc
