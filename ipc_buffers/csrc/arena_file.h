#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>

namespace ipc {

inline constexpr char kShmFolder[] = "/dev/shm";
inline constexpr char kNamePrefix[] = "unifiedserve-";
inline constexpr std::uint64_t kArenaMagic = 0x616e6572612d7375;  // "us-arena"
inline constexpr std::uint32_t kArenaVersion = 4;

inline std::string shm_name(const std::string& arena) { return std::string("/") + kNamePrefix + arena; }

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (is_open()) ::close(descriptor_);
  }

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace ipc
