#include "process_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

namespace ipc {
namespace {

struct ProcessStatus {
  char state;
  std::uint64_t start_time;
};

std::string folder_of(std::int64_t pid) { return "/proc/" + std::to_string(pid); }

// proc(5): the command name, field 2, may hold spaces and parentheses, so fields count from its last ')'.
std::optional<ProcessStatus> read_status(std::int64_t pid) {
  std::ifstream file(folder_of(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessStatus status{};
  fields >> status.state;
  constexpr int kFieldsBetween = 18;  // fields 4 to 21
  std::string skipped;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  if (!(fields >> status.start_time)) return std::nullopt;
  return status;
}

// The inode of a path, 0 if there is none.
std::uint64_t inode_of(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

std::uint64_t current_pid_namespace() { return inode_of("/proc/self/ns/pid"); }

}  // namespace

ProcessIdentity ProcessIdentity::current() {
  const auto status = read_status(::getpid());
  return {::getpid(), status ? status->start_time : 0, current_pid_namespace()};
}

bool ProcessIdentity::is_alive() const {
  if (pid_namespace != current_pid_namespace()) return true;
  const auto status = read_status(pid);
  if (!status) return inode_of(folder_of(pid)) != 0;  // a sandbox may hide the status, but not that there is a process
  return status->start_time == start_time && status->state != 'Z' && status->state != 'X';
}

}  // namespace ipc
