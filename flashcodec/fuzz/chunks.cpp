#include "chunks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

namespace flashcodec::fuzz {

namespace {

using Bytes = std::span<const uint8_t>;

constexpr size_t kMostChunks = 4096;

uint64_t big_endian(Bytes bytes, size_t at, int count) {
  uint64_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | bytes[at + i];
  return value;
}

std::string_view tag(Bytes bytes, size_t at, size_t count = 4) {
  return {reinterpret_cast<const char*>(bytes.data()) + at, count};
}

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Finder {
 public:
  explicit Finder(Bytes bytes) : bytes_(bytes) {}

  Chunks find() {
    if (size() >= 12 && (tag(bytes_, 4) == "ftyp" || tag(bytes_, 4) == "moov" || tag(bytes_, 4) == "mdat")) {
      boxes(0, size());
    } else if (size() >= 4 && big_endian(bytes_, 0, 4) == 0x1A45DFA3) {
      elements(0, size());
    } else if (size() >= 12 && tag(bytes_, 0) == "RIFF") {
      riff(0, size());
    } else if (size() > 2 * kTsPacket && bytes_[0] == 0x47 && bytes_[kTsPacket] == 0x47) {
      ts_packets();
    } else if (size() > 13 && tag(bytes_, 0, 3) == "FLV") {
      flv_tags();
    } else {
      start_codes();
    }
    if (found_.chunks.size() < 2) slices();
    return std::move(found_);
  }

 private:
  static constexpr size_t kTsPacket = 188;

  size_t size() const { return bytes_.size(); }
  bool full() const { return found_.chunks.size() >= kMostChunks; }

  void length(size_t offset, int bytes, Coding coding = Coding::kBigEndian) {
    if (offset + bytes <= size()) found_.lengths.push_back({offset, bytes, coding});
  }

  void boxes(size_t at, size_t end) {
    while (at + 8 <= end && !full()) {
      uint64_t box = big_endian(bytes_, at, 4);
      size_t header = 8;
      if (box == 1 && at + 16 <= end) {
        box = big_endian(bytes_, at + 8, 8);
        header = 16;
        length(at + 8, 8);
      }
      if (box < header || box > end - at) box = end - at;
      length(at, 4);
      const size_t box_end = at + static_cast<size_t>(box);
      found_.chunks.push_back({at, box_end});
      inside_box(tag(bytes_, at + 4), std::min(at + header, box_end), box_end);
      at = box_end;
    }
  }

  void inside_box(std::string_view type, size_t at, size_t end) {
    constexpr std::array<std::string_view, 11> parents{"moov", "trak", "mdia", "minf", "stbl", "moof",
                                                       "traf", "edts", "udta", "mvex", "dinf"};
    constexpr std::array<std::string_view, 11> tables{"stts", "stsc", "stco", "co64", "ctts", "stss",
                                                      "elst", "stsz", "trun", "sidx", "tfra"};
    constexpr std::array<std::string_view, 4> sample_entries{"avc1", "hvc1", "av01", "vp09"};
    if (is_one_of(type, parents)) boxes(at, end);
    if (type == "meta") boxes(std::min(at + 4, end), end);
    if (type == "stsd") {
      length(at + 4, 4);
      boxes(std::min(at + 8, end), end);
    }
    if (is_one_of(type, sample_entries) && at + 78 < end) boxes(at + 78, end);
    if (is_one_of(type, tables)) {
      const size_t step = std::max<size_t>((end - at) / 64 / 4 * 4, 4);
      for (size_t word = at + 4; word + 4 <= end; word += step) length(word, 4);
    }
    if (type == "mdat") nal_units(at, end);
  }

  void nal_units(size_t at, size_t end) {
    while (at + 5 <= end && !full()) {
      const auto nal = static_cast<size_t>(big_endian(bytes_, at, 4));
      if (nal == 0 || nal > end - at - 4) return;
      length(at, 4);
      found_.chunks.push_back({at, at + 4 + nal});
      at += 4 + nal;
    }
  }

  // A variable-length number of EBML: how many bytes it takes, 0 if there is none.
  size_t vint(size_t at, bool keep_marker, uint64_t& value) const {
    if (at >= size() || bytes_[at] == 0) return 0;
    const auto count = static_cast<size_t>(std::countl_zero(bytes_[at])) + 1;
    if (at + count > size()) return 0;
    value = big_endian(bytes_, at, static_cast<int>(count));
    if (!keep_marker) value &= (uint64_t{1} << 7 * count) - 1;
    return count;
  }

  void elements(size_t at, size_t end) {
    constexpr std::array<uint64_t, 11> parents{0x1A45DFA3, 0x18538067, 0x1F43B675, 0x1654AE6B, 0xAE,  0xA0,
                                               0x1C53BB6B, 0xBB,       0xE0,       0x114D9B74, 0x4DBB};
    while (at < end && !full()) {
      uint64_t id = 0;
      uint64_t content = 0;
      const size_t id_bytes = vint(at, true, id);
      const size_t size_bytes = id_bytes == 0 ? 0 : vint(at + id_bytes, false, content);
      if (size_bytes == 0 || at + id_bytes + size_bytes > end) return;
      const size_t begin = at + id_bytes + size_bytes;
      const size_t next = begin + static_cast<size_t>(std::min<uint64_t>(content, end - begin));
      length(at + id_bytes, static_cast<int>(size_bytes), Coding::kEbml);
      found_.chunks.push_back({at, next});
      if (std::find(parents.begin(), parents.end(), id) != parents.end()) elements(begin, next);
      at = next;
    }
  }

  void riff(size_t at, size_t end) {
    while (at + 8 <= end && !full()) {
      uint32_t content = 0;
      std::memcpy(&content, bytes_.data() + at + 4, 4);
      const size_t next = at + 8 + std::min<size_t>((size_t{content} + 1) / 2 * 2, end - at - 8);
      length(at + 4, 4, Coding::kLittleEndian);
      found_.chunks.push_back({at, next});
      if ((tag(bytes_, at) == "RIFF" || tag(bytes_, at) == "LIST") && at + 12 <= next) riff(at + 12, next);
      at = next;
    }
  }

  void ts_packets() {
    for (size_t at = 0; at + kTsPacket <= size() && !full(); at += kTsPacket) {
      found_.chunks.push_back({at, at + kTsPacket});
      const bool adaptation = (bytes_[at + 3] & 0x20) != 0;
      if (adaptation) length(at + 4, 1);
      const size_t payload = at + 4 + (adaptation ? size_t{1} + bytes_[at + 4] : 0);
      const bool starts = (bytes_[at + 1] & 0x40) != 0;
      if (starts) length(payload, 1);      // pointer field of a section
      if (starts) length(payload + 4, 2);  // length of a PES packet
    }
  }

  void flv_tags() {
    for (size_t at = 13; at + 15 <= size() && !full();) {
      const size_t next = std::min(at + 11 + static_cast<size_t>(big_endian(bytes_, at + 1, 3)) + 4, size());
      length(at + 1, 3);
      found_.chunks.push_back({at, next});
      at = next;
    }
  }

  void start_codes() {
    size_t begin = size();
    for (size_t at = 0; at + 6 < size() && !full(); ++at) {
      if (bytes_[at] != 0 || bytes_[at + 1] != 0 || bytes_[at + 2] != 1) continue;
      if (begin < at) found_.chunks.push_back({begin, at});
      begin = at;
      if (bytes_[at + 3] >= 0xBB) length(at + 4, 2);  // a PES packet
    }
    if (begin < size()) found_.chunks.push_back({begin, size()});
  }

  void slices() {
    constexpr size_t kSlices = 64;
    for (size_t i = 0; i < kSlices; ++i) {
      const Chunk slice{size() * i / kSlices, size() * (i + 1) / kSlices};
      if (slice.begin < slice.end) found_.chunks.push_back(slice);
    }
  }

  Bytes bytes_;
  Chunks found_;
};

}  // namespace

Chunks find_chunks(std::span<const uint8_t> bytes) { return Finder(bytes).find(); }

}  // namespace flashcodec::fuzz
