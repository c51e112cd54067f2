#include "source/mp4_tables.h"

#include <algorithm>
#include <array>
#include <vector>

namespace flashcodec {

namespace {

constexpr uint32_t type(const char (&name)[5]) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(name[i]);
  return value;
}

// Those that FFmpeg looks into.
constexpr std::array kContainers{type("moov"), type("trak"), type("edts"), type("mdia"), type("minf"), type("stbl"),
                                 type("moof"), type("traf"), type("udta"), type("mvex"), type("meta"), type("dinf"),
                                 type("tapt"), type("sinf"), type("ipro"), type("schi")};
constexpr int kDeepest = 10;  // FFmpeg goes no deeper, either
constexpr int64_t kMostSkipped = 1 << 16;

// Numbers at any offset, read through a window that small boxes fit in. Past the end there are zeros.
class Window {
 public:
  explicit Window(Source& source) : source_(source) {}

  uint32_t word(int64_t offset) {
    if (offset < begin_ || offset + 4 > begin_ + static_cast<int64_t>(bytes_.size())) fill(offset);
    const uint8_t* b = bytes_.data() + (offset - begin_);
    return uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
  }

  int64_t size() const { return source_.size(); }

 private:
  void fill(int64_t offset) {
    bytes_.assign(kBytes, 0);
    begin_ = offset;
    size_t done = 0;
    while (done < bytes_.size()) {
      const size_t count = source_.read_at(offset + static_cast<int64_t>(done), std::span(bytes_).subspan(done));
      if (count == 0) return;
      done += count;
    }
  }

  static constexpr size_t kBytes = 4096;
  Source& source_;
  std::vector<uint8_t> bytes_;
  int64_t begin_ = 0;
};

// Sums up over the boxes (ISO/IEC 14496-12).
class Tables {
 public:
  explicit Tables(Source& source) : file_(source) {}

  int64_t count() {
    walk(0, file_.size(), 0);
    end_track();
    return claimed_;
  }

 private:
  struct Track {
    bool sound = false;
    bool single_ticks = false;  // each sample lasts one tick of the clock
    int64_t samples = 0;
    bool alike = false;
    int64_t edits = 0;
    int64_t offsets = 0;  // samples that get a composition time offset
    int64_t grouped = 0;  // samples that are in a group
  };

  void walk(int64_t offset, int64_t end, int depth) {
    constexpr int64_t kHeader = 8, kLongHeader = 16;
    while (offset + kHeader <= end) {
      int64_t size = file_.word(offset);
      const uint32_t box = file_.word(offset + 4);
      int64_t body = offset + kHeader;
      if (size == 1) {
        size = static_cast<int64_t>(uint64_t{file_.word(offset + 8)} << 32 | file_.word(offset + 12));
        body = offset + kLongHeader;
      }
      if (size == 0 || size > end - offset) size = end - offset;
      if (size < body - offset) return;
      if (box == type("meta")) body = first_child(body, offset + size);
      look_at(box, body, offset + size);
      const bool container = std::find(kContainers.begin(), kContainers.end(), box) != kContainers.end();
      if (container && depth < kDeepest) walk(body, offset + size, depth + 1);
      offset += size;
    }
  }

  // A meta box may begin with a version and flags, or not: FFmpeg looks for its handler.
  int64_t first_child(int64_t body, int64_t end) {
    for (int64_t at = body; at + 8 <= std::min(end, body + kMostSkipped); at += 4) {
      if (file_.word(at + 4) == type("hdlr")) return at;
    }
    return end;
  }

  // `body` is where the version and flags of a table are.
  void look_at(uint32_t box, int64_t body, int64_t end) {
    constexpr int64_t kShortestKey = 8;
    constexpr uint32_t kListed = 0xF00;  // a run's samples have a duration, size, flags or offset each (8.8.8)
    switch (box) {
      case type("trak"):
        end_track();
        break;
      case type("hdlr"):
        track_.sound = track_.sound || file_.word(body + 8) == type("soun");
        break;
      case type("stts"):
        track_.single_ticks = file_.word(body + 4) == 1 && file_.word(body + 12) == 1;
        break;
      case type("stsz"):
        track_.alike = file_.word(body + 4) != 0;
        track_.samples = file_.word(body + 8);
        break;
      case type("elst"):
        track_.edits = file_.word(body + 4);
        break;
      case type("ctts"):
        track_.offsets = sum_of_counts(body + 4);
        break;
      case type("sbgp"):
        track_.grouped = std::max(track_.grouped, sum_of_counts(body + (file_.word(body) >> 24 == 1 ? 12 : 8)));
        break;
      case type("trun"):
        if ((file_.word(body) & kListed) == 0) claim(file_.word(body + 4));
        break;
      case type("keys"):
        claim(std::max<int64_t>(0, file_.word(body + 4) - (end - body) / kShortestKey));
        break;
    }
  }

  // Of a table of pairs, a count of samples and what they have in common, that begins with its length at `offset`.
  int64_t sum_of_counts(int64_t offset) {
    constexpr int64_t kPair = 8;
    const int64_t first = offset + 4;
    const int64_t pairs = std::min<int64_t>(file_.word(offset), std::max<int64_t>(0, file_.size() - first) / kPair);
    int64_t sum = 0;
    for (int64_t i = 0; i < pairs; ++i) sum += file_.word(first + i * kPair);
    return sum;
  }

  void end_track() {
    constexpr int64_t kUsualShare = 8;                           // an entry of an edit list takes a part of the track
    const bool by_chunks = track_.sound && track_.single_ticks;  // FFmpeg keeps PCM so
    if (track_.alike && !by_chunks) claim(track_.samples);
    if (track_.edits > 1 && !by_chunks) claim((track_.edits - 1) * (track_.samples / kUsualShare));
    claim(std::max<int64_t>(0, track_.offsets - track_.samples));
    claim(std::max<int64_t>(0, track_.grouped - track_.samples));
    track_ = {};
  }

  // `samples` has less than 62 bits.
  void claim(int64_t samples) { claimed_ = std::min(claimed_ + samples, int64_t{1} << 62); }

  Window file_;
  Track track_;
  int64_t claimed_ = 0;
};

}  // namespace

int64_t unlisted_entries(Source& source) { return Tables(source).count(); }

}  // namespace flashcodec
