// What files are that are no videos, by their first bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace flashcodec {

// As many bytes as are looked at.
constexpr size_t kHeadBytes = 512;

struct FileKind {
  std::string name;    // with its article, "a PNG image"
  std::string advice;  // what to do with it; may be empty
  bool media = false;  // pictures or sound
  bool image = false;  // one that flashcodec.image decodes

  std::string text() const { return advice.empty() ? name : name + ": " + advice; }
};

// Nothing if these first bytes may be anything, a damaged video among them.
std::optional<FileKind> kind_of_file(std::span<const uint8_t> head);

}  // namespace flashcodec
