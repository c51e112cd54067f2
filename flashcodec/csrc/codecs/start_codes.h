// The parts of a packet between start codes, 00 00 01 (MPEG-1, 2 and 4, Annex B of H.264 and HEVC).
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace flashcodec {

// Where the next start code begins, or data.size().
inline size_t find_start_code(std::span<const uint8_t> data, size_t from) {
  for (size_t at = from + 2; at < data.size(); ++at) {
    const void* one = std::memchr(data.data() + at, 1, data.size() - at);
    if (one == nullptr) break;
    at = static_cast<size_t>(static_cast<const uint8_t*>(one) - data.data());
    if (data[at - 1] == 0 && data[at - 2] == 0) return at - 2;
  }
  return data.size();
}

// Calls visit(part), the bytes after a start code up to the next one, until it returns false.
template <class Visit>
void visit_start_codes(std::span<const uint8_t> data, Visit visit) {
  size_t at = find_start_code(data, 0);
  while (at < data.size()) {
    const size_t begin = at + 3;
    at = find_start_code(data, begin);
    const auto part = data.subspan(begin, at - begin);
    if (!part.empty() && !visit(part)) return;
  }
}

}  // namespace flashcodec
