#include "mutation.h"

#include <algorithm>
#include <array>
#include <random>

#include "chunks.h"

namespace flashcodec::fuzz {

namespace {

class Mutator {
 public:
  Mutator(std::vector<uint8_t> bytes, uint64_t seed) : bytes_(std::move(bytes)), random_(seed) {}

  std::vector<uint8_t> mutate() {
    // The kinds that leave most of the file alone come more often: much of what is cut or shuffled is refused at once.
    constexpr std::array kinds{&Mutator::flip_bits,
                               &Mutator::flip_bits,
                               &Mutator::flip_small_chunk,
                               &Mutator::flip_small_chunk,
                               &Mutator::lie,
                               &Mutator::lie,
                               &Mutator::lie,
                               &Mutator::overwrite,
                               &Mutator::zero_hole,
                               &Mutator::truncate,
                               &Mutator::swap_chunks,
                               &Mutator::shuffle_chunks,
                               &Mutator::double_chunk,
                               &Mutator::remove_chunk};
    for (size_t left = below(2) == 0 ? 1 : 2 + below(3); left > 0 && !bytes_.empty(); --left) {
      found_ = find_chunks(bytes_);
      (this->*kinds[below(kinds.size())])();
    }
    return std::move(bytes_);
  }

 private:
  // std::uniform_int_distribution differs from library to library.
  size_t below(size_t count) { return static_cast<size_t>(random_() % count); }
  size_t place() { return below(bytes_.size()); }
  const Chunk& any_chunk() { return found_.chunks[below(found_.chunks.size())]; }
  auto at(size_t offset) { return bytes_.begin() + static_cast<std::ptrdiff_t>(offset); }

  void flip(size_t begin, size_t end, size_t most) {
    for (size_t left = 1 + below(most); left > 0; --left) bytes_[begin + below(end - begin)] ^= 1 << below(8);
  }

  void flip_bits() { flip(0, bytes_.size(), 60); }

  // Most of a file is picture data; tables and headers are small.
  void flip_small_chunk() {
    constexpr size_t kSmall = 1024;
    for (int tries = 0; tries < 16; ++tries) {
      const Chunk& chunk = any_chunk();
      if (chunk.begin < chunk.end && chunk.end - chunk.begin <= kSmall) return flip(chunk.begin, chunk.end, 8);
    }
    flip_bits();
  }

  void overwrite() {
    const size_t begin = place();
    const size_t end = std::min(bytes_.size(), begin + 1 + below(below(4) == 0 ? 4000 : 32));
    std::generate(at(begin), at(end), [&] { return static_cast<uint8_t>(random_()); });
  }

  void zero_hole() {
    const size_t begin = place();
    std::fill(at(begin), at(std::min(bytes_.size(), begin + 1 + below(20'000))), 0);
  }

  void truncate() { bytes_.resize(place()); }

  void lie() {
    if (found_.lengths.empty()) return flip_small_chunk();
    const LengthField field = found_.lengths[below(found_.lengths.size())];
    const uint64_t truth = read(field);
    const std::array<uint64_t, 10> lies{0,         1,          truth + 1,      truth - 1,     truth * 2,
                                        truth / 2, UINT64_MAX, UINT64_MAX / 2, bytes_.size(), random_()};
    write(field, lies[below(lies.size())]);
  }

  uint64_t read(const LengthField& field) const {
    uint64_t value = 0;
    for (int i = 0; i < field.bytes; ++i) value |= uint64_t{bytes_[byte_of(field, i)]} << 8 * i;
    return field.coding == Coding::kEbml ? value & ~marker(field) : value;
  }

  void write(const LengthField& field, uint64_t value) {
    if (field.coding == Coding::kEbml) value = (value & (marker(field) - 1)) | marker(field);
    for (int i = 0; i < field.bytes; ++i) bytes_[byte_of(field, i)] = static_cast<uint8_t>(value >> 8 * i);
  }

  // Of the byte of significance `i`.
  static size_t byte_of(const LengthField& field, int i) {
    return field.offset + static_cast<size_t>(field.coding == Coding::kLittleEndian ? i : field.bytes - 1 - i);
  }

  static uint64_t marker(const LengthField& field) { return uint64_t{1} << 7 * field.bytes; }

  // The chunk that follows, at the same level or a level above; none after the last.
  const Chunk* after(const Chunk& chunk) const {
    const auto next = std::find_if(found_.chunks.begin(), found_.chunks.end(),
                                   [&](const Chunk& other) { return other.begin >= chunk.end; });
    return next == found_.chunks.end() ? nullptr : &*next;
  }

  void swap(const Chunk& first, const Chunk& second) {
    std::rotate(at(first.begin), at(second.begin), at(second.end));
    const size_t between = second.begin - first.end;
    const size_t moved = first.begin + (second.end - second.begin);
    std::rotate(at(moved), at(moved + (first.end - first.begin)), at(moved + (first.end - first.begin) + between));
  }

  void swap_chunks() {
    const Chunk *first = &any_chunk(), *second = &any_chunk();
    if (second->begin < first->begin) std::swap(first, second);
    if (second->begin >= first->end) swap(*first, *second);
  }

  void shuffle_chunks() {
    for (size_t left = 2 + below(8); left > 0; --left) {
      const Chunk& first = any_chunk();
      const Chunk* second = after(first);
      if (second == nullptr) continue;
      swap(first, *second);
      found_ = find_chunks(bytes_);
    }
  }

  void double_chunk() {
    constexpr size_t kMost = 1 << 20;
    const Chunk& chunk = any_chunk();
    if (chunk.end - chunk.begin > kMost) return;
    const std::vector<uint8_t> copy(at(chunk.begin), at(chunk.end));
    bytes_.insert(at(any_chunk().begin), copy.begin(), copy.end());
  }

  void remove_chunk() {
    const Chunk& chunk = any_chunk();
    bytes_.erase(at(chunk.begin), at(chunk.end));
  }

  std::vector<uint8_t> bytes_;
  std::mt19937_64 random_;
  Chunks found_;
};

}  // namespace

std::vector<uint8_t> mutate(std::vector<uint8_t> bytes, uint64_t seed) {
  if (seed == 0) return bytes;
  return Mutator(std::move(bytes), seed).mutate();
}

}  // namespace flashcodec::fuzz
