// Which packets have frames, and in what order and when these are shown.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "bitstream/clock.h"
#include "bitstream/doubt.h"
#include "bitstream/packets.h"
#include "ffmpeg/packet.h"

namespace flashcodec {

// What the packets say of the order of their pictures.
struct OrderEvidence {
  using Place = std::optional<int64_t>;
  std::vector<Place> places;    // of each packet (PictureOrder); empty if they were not looked at
  int64_t pictures = 0;         // in all packets
  bool too_large = false;       // pictures are over the limit of pixels, so they cannot be tried
  std::vector<int32_t> joints;  // where another stream seems to go on, not at a clean start

  bool complete() const { return !places.empty() && std::ranges::all_of(places, &Place::has_value); }
};

// The container's times order the frames where the packets do not contradict them; else the packets do, and the times
// are given out in ascending order. Where a stream does not begin or go on cleanly, its decoder tells what comes out.
class FrameOrder {
 public:
  // The table's packets get their places; its key flags must be settled. Throws DecodeError once the deadline has
  // passed.
  FrameOrder(PacketTable& table, const AVCodecParameters& parameters, Clock clock, OrderEvidence evidence,
             Deadline deadline);

  std::vector<int32_t> take_frames() { return std::move(frames_); }  // packet of each frame
  std::vector<int64_t> take_pts() { return std::move(pts_); }
  // It is known which packet each frame comes from.
  bool ordered() const { return ordered_; }
  const std::vector<Doubt>& doubts() const { return doubts_; }

 private:
  // Packets [first, last), tried in a row. `shown`: those whose frames come out, in order.
  struct Trial {
    int32_t first;
    int32_t last;
    std::vector<int32_t> shown;
  };

  struct Rank {
    int32_t part = 0;  // trials, and what is between them, in turn
    int32_t parts_before = 0;
    int64_t place = 0;
  };

  // In the order of what is shown, before trials.
  struct Key {
    int64_t first;
    int64_t second;
    int32_t packet;

    bool operator<(const Key& other) const {
      if (first != other.first) return first < other.first;
      return second != other.second ? second < other.second : packet < other.packet;
    }
  };

  void choose_order();
  std::optional<std::pair<int32_t, int32_t>> contradiction() const;
  bool decoder_contradicts(int32_t one, int32_t other) const;
  bool note_repeated_places();
  Key key_of(int32_t packet) const;
  bool before(int32_t a, int32_t b) const;
  std::vector<int32_t> sequence() const;
  void find_starts();
  // The last packet up to this one, or the first behind it, at which decoding may start; 0 or all packets if none is.
  int32_t start_before(int32_t packet) const;
  int32_t start_after(int32_t packet) const;
  int32_t end_of_leading(int32_t start) const;
  bool starts_torn() const;
  bool torn() const;
  bool repeats() const;
  int64_t pixels_of_picture() const;
  bool is_small() const;
  bool number_as_decoded();
  void plan_trials();
  void add_trial(int32_t first, int32_t last);
  void try_all();
  void number();
  void move_trials(std::vector<int32_t>& packets);
  void apply(const Trial& trial, std::vector<Rank>& ranks);

  PacketTable& table_;
  const AVCodecParameters& parameters_;
  Clock clock_;
  OrderEvidence evidence_;
  Deadline deadline_;
  bool by_place_ = false;  // not by time
  bool ordered_ = true;
  std::vector<int32_t> start_before_;
  std::vector<int32_t> start_after_;
  std::vector<Trial> trials_;
  std::vector<int32_t> frames_;
  std::vector<int64_t> pts_;
  std::vector<Doubt> doubts_;
};

}  // namespace flashcodec
