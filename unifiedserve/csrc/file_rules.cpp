#include "file_rules.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/magic.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

namespace unified {
namespace {

using Rights = std::uint64_t;

// Later than some headers.
constexpr Rights kRefer = 1ULL << 13, kTruncate = 1ULL << 14, kDeviceCalls = 1ULL << 15;
constexpr Rights kBindTcp = 1ULL << 0, kConnectTcp = 1ULL << 1;
constexpr Rights kAbstractSockets = 1ULL << 0, kSignals = 1ULL << 1;

constexpr Rights kRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr Rights kWrite = kRead | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                          LANDLOCK_ACCESS_FS_REMOVE_FILE | kTruncate | kDeviceCalls;
constexpr Rights kOfFiles = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate | kDeviceCalls;
constexpr Rights kOfFirstVersion = kRefer - 1;

// As the kernel has it; it takes the first bytes of it only if it is older.
struct Ruleset {
  Rights files, ports, scope;
};

struct Descriptor {
  explicit Descriptor(int number) : number(number) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number;
};

// A rule goes with its inode, and procfs drops an inode when memory is short unless somebody has it open.
bool forgets(int file) {
  struct statfs about {};
  return ::fstatfs(file, &about) == 0 && about.f_type == PROC_SUPER_MAGIC;
}

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

Ruleset ruleset_of(int version, bool unix_sockets) {
  Ruleset rules{kOfFirstVersion, 0, 0};
  if (version >= 2) rules.files |= kRefer;
  if (version >= 3) rules.files |= kTruncate;
  if (version >= 4) rules.ports = kBindTcp | kConnectTcp;
  if (version >= 5) rules.files |= kDeviceCalls;
  if (version >= 6) rules.scope = unix_sockets ? kSignals : kSignals | kAbstractSockets;
  return rules;
}

std::size_t size_for(int version) {
  if (version < 4) return sizeof(Rights);
  return version < 6 ? 2 * sizeof(Rights) : sizeof(Ruleset);
}

void allow(int ruleset, const std::string& path, Rights rights) {
  Descriptor file(::open(path.c_str(), O_PATH | O_CLOEXEC));  // NOLINT(cppcoreguidelines-pro-type-vararg)
  struct stat about {};
  if (file.number < 0 || ::fstat(file.number, &about) != 0) return;
  landlock_path_beneath_attr rule{};
  rule.allowed_access = S_ISDIR(about.st_mode) ? rights : rights & kOfFiles;
  rule.parent_fd = file.number;
  if (::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) fail("landlock_add_rule");
  if (forgets(file.number)) file.number = -1;  // stays open as long as the process lives
}

}  // namespace

int file_rules_version() {
  const auto found = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return static_cast<int>(std::max(found, 0L));
}

int restrict_files(const std::vector<std::string>& readable, const std::vector<std::string>& writable,
                   bool unix_sockets) {
  const int known = file_rules_version();
  if (known == 0) return 0;
  const Ruleset rules = ruleset_of(known, unix_sockets);
  const auto made = ::syscall(SYS_landlock_create_ruleset, &rules, size_for(known), 0);
  if (made < 0) fail("landlock_create_ruleset");
  const Descriptor ruleset(static_cast<int>(made));
  for (const auto& path : readable) allow(ruleset.number, path, kRead & rules.files);
  for (const auto& path : writable) allow(ruleset.number, path, kWrite & rules.files);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("PR_SET_NO_NEW_PRIVS");
  if (::syscall(SYS_landlock_restrict_self, ruleset.number, 0) != 0) fail("landlock_restrict_self");
  return known;
}

}  // namespace unified
