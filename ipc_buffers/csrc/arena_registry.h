#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arena.h"

namespace ipc {

struct ArenaInfo {
  std::string name;
  std::string kind;
  std::uint64_t size;
  std::int64_t pid;  // of the creator
  bool alive;        // the creator is
};

// The arenas of this machine, by name. The headers in /dev/shm are the registry: nothing can disagree with them.
std::vector<ArenaInfo> list_arenas();

// Unlinks the arenas whose creator is dead; returns their names.
std::vector<std::string> remove_stale_arenas();

}  // namespace ipc
