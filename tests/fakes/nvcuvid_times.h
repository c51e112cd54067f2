// The timestamps that the parser gives pictures, as NVIDIA's open parser does (VulkanVideoDecoder.cpp of
// Vulkan-Video-Samples): for the first 16 that are shown it looks whether the container tells decoding times instead,
// and if so it exchanges the timestamps of pictures for good.
#pragma once

#include <array>
#include <optional>
#include <utility>

class Times {
 public:
  explicit Times(unsigned clock_rate) : frame_(clock_rate == 0 ? 10'000'000 / 30 : clock_rate / 30) {}

  // A picture has been decoded to a surface, from a packet with this timestamp.
  void decoded(int surface, std::optional<long long> timestamp) {
    Entry& entry = slot_for(surface);
    entry = {surface, timestamp.has_value(), timestamp.value_or(expected_)};
  }

  // Return the timestamp to show a surface with.
  long long shown(int surface) {
    Entry& entry = slot_for(surface);
    if (entry.valid) {
      if (filters_ || checks_ > 0) exchange(entry);
    } else {
      entry.time = first_ ? guessed() : expected_;
    }
    expected_ = entry.time + frame_;
    first_ = false;
    entry.surface = -1;
    return entry.time;
  }

 private:
  struct Entry {
    int surface = -1;
    bool valid = false;
    long long time = 0;
  };

  // The surface's own, or a free one, or the one with the earliest time.
  Entry& slot_for(int surface) {
    Entry* chosen = entries_.data();
    for (Entry& entry : entries_) {
      if (entry.surface == surface) return entry;
      if (entry.surface < 0 || (chosen->surface >= 0 && entry.time < chosen->time)) chosen = &entry;
    }
    return *chosen;
  }

  void exchange(Entry& entry) {
    Entry* earliest = &entry;
    for (Entry& other : entries_) {
      if (other.valid && other.surface >= 0 && other.time < earliest->time) earliest = &other;
    }
    if (earliest != &entry) {
      if (checks_ > 0) filters_ = true;
      std::swap(earliest->time, entry.time);
    }
    if (checks_ > 0) --checks_;
  }

  long long guessed() const {
    for (const Entry& entry : entries_) {
      if (entry.surface >= 0 && entry.valid) return entry.time - frame_;
    }
    return expected_;
  }

  std::array<Entry, 32> entries_;
  int checks_ = 16;
  bool filters_ = false;
  bool first_ = true;
  long long expected_ = 0;
  const long long frame_;
};
