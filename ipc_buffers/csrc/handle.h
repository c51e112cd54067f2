#pragma once

#include <memory>
#include <span>
#include <utility>

#include "arena.h"

namespace ipc {

// What Python holds: close() drops this handle's share of the mapping, calls in flight and views keep theirs.
template <typename T>
class Handle {
 public:
  explicit Handle(std::shared_ptr<T> object) : identity_(object->identity()), object_(std::move(object)) {}

  std::shared_ptr<T> get() const {
    if (object_ == nullptr) throw ArenaError("arena '" + identity_.name + "': this handle is closed");
    return object_;
  }
  const std::string& name() const { return identity_.name; }
  std::shared_ptr<T> take() { return std::move(object_); }
  void close() { object_.reset(); }
  void unlink() const { identity_.unlink(); }

 private:
  ArenaIdentity identity_;
  std::shared_ptr<T> object_;
};

// Exported through the buffer protocol; whoever looks at the bytes keeps them mapped.
struct Region {
  std::shared_ptr<const void> owner;
  std::span<std::byte> bytes;
};

}  // namespace ipc
