#include "arena_registry.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "arena_file.h"

namespace ipc {
namespace {

struct Entry {
  ArenaIdentity identity;
  ArenaHeader header;
};

std::optional<Entry> read_entry(const std::string& name) {
  const File file(::shm_open(shm_name(name).c_str(), O_RDONLY, 0));
  if (!file.is_open()) return std::nullopt;
  struct stat status {};
  Entry entry{};
  if (::fstat(file.descriptor(), &status) != 0 ||
      ::pread(file.descriptor(), &entry.header, sizeof entry.header, 0) != sizeof entry.header ||
      entry.header.magic != kArenaMagic) {
    return std::nullopt;
  }
  entry.identity = {name, status.st_ino};
  return entry;
}

std::vector<Entry> read_entries() {
  std::vector<Entry> entries;
  std::error_code ignored;  // no /dev/shm: no arenas
  for (const auto& file : std::filesystem::directory_iterator(kShmFolder, ignored)) {
    const auto file_name = file.path().filename().string();
    if (!file_name.starts_with(kNamePrefix)) continue;
    if (auto entry = read_entry(file_name.substr(sizeof kNamePrefix - 1))) entries.push_back(std::move(*entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.identity.name < b.identity.name; });
  return entries;
}

}  // namespace

std::vector<ArenaInfo> list_arenas() {
  std::vector<ArenaInfo> arenas;
  for (const auto& [identity, header] : read_entries()) {
    arenas.push_back({identity.name, std::string(describe(header.kind)), header.size, header.creator.pid,
                      header.creator.is_alive()});
  }
  return arenas;
}

std::vector<std::string> remove_stale_arenas() {
  std::vector<std::string> removed;
  for (const auto& [identity, header] : read_entries()) {
    if (header.creator.is_alive()) continue;
    identity.unlink();
    removed.push_back(identity.name);
  }
  return removed;
}

}  // namespace ipc
