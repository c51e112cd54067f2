#pragma once

#include <optional>
#include <string>

namespace ipc {

// Where bytes lie: in host memory, or on the GPU that this process numbers so. Written "host" or "cuda:N".
struct Place {
  std::optional<int> gpu;

  // Throws std::invalid_argument for anything else.
  static Place parse(const std::string& text);
  std::string text() const;
};

}  // namespace ipc
