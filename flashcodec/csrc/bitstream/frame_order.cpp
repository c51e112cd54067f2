#include "bitstream/frame_order.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "bitstream/trial.h"
#include "codecs/coded_format.h"

namespace flashcodec {

namespace {

// A start that never gets clean is tried so far; what follows is taken to go on as it is.
constexpr int32_t kLongestStart = 300;
// Packets that are decoded to settle whether times or packets are right.
constexpr int32_t kLongestDispute = 1 << 10;
// Pictures that trials may decode in all: a stream may be cut anywhere, and often.
constexpr int32_t kMostTried = 1 << 13;
// A stream that is torn is decoded as a whole to count its frames if it has no more pixels: that takes seconds.
constexpr int64_t kMostPixels = int64_t{1} << 31;

}  // namespace

FrameOrder::FrameOrder(PacketTable& table, const AVCodecParameters& parameters, Clock clock, OrderEvidence evidence,
                       Deadline deadline)
    : table_(table),
      parameters_(parameters),
      clock_(std::move(clock)),
      evidence_(std::move(evidence)),
      deadline_(deadline) {
  find_starts();
  choose_order();
  if (!evidence_.too_large) {
    if (torn() && is_small() && number_as_decoded()) return;
    plan_trials();
    try_all();
  }
  number();
}

void FrameOrder::choose_order() {
  const bool placed = evidence_.complete();
  bool timed = true;
  for (size_t i = 0; i < table_.packets.size(); ++i) {
    timed = timed && (clock_.known[i] || !table_.packets[i].is_frame());
  }
  const bool tells_places = parameters_.codec_id == AV_CODEC_ID_MPEG4 && !evidence_.places.empty();
  if (!placed) evidence_.places.clear();
  ordered_ = placed || (timed && !tells_places);  // MPEG-4 packets of several pictures or none mix up times
  if (!placed) return;
  const bool repeated = note_repeated_places();
  by_place_ = !timed;
  const auto pair = timed && !repeated ? contradiction() : std::nullopt;
  if (!pair || !decoder_contradicts(pair->first, pair->second)) return;
  by_place_ = true;
  const std::string where = std::to_string(std::min(pair->first, pair->second));
  doubts_.push_back({"times", "pictures are shown in another order, from packet " + where + " on"});
}

// Packets of which the times say that the first is shown before the second, and their pictures the reverse.
std::optional<std::pair<int32_t, int32_t>> FrameOrder::contradiction() const {
  std::optional<int32_t> last;
  for (const int32_t packet : sequence()) {
    if (!table_.packets[packet].is_frame()) continue;
    if (last && *evidence_.places[packet] < *evidence_.places[*last]) return std::pair(*last, packet);
    last = packet;
  }
  return std::nullopt;
}

bool FrameOrder::decoder_contradicts(int32_t one, int32_t other) const {
  if (std::abs(one - other) > kLongestStart) return true;                      // no decoder keeps a picture for so long
  const int32_t first = start_before(start_before(std::min(one, other)) - 1);  // for pictures that lead the start
  const int32_t last = std::min(start_after(std::max(one, other)), std::max(one, other) + kLongestDelay);
  if (last - first > kLongestDispute) return false;
  const TrialResult result = try_packets(table_, parameters_, first, last, deadline_);
  return result.told && !std::ranges::is_sorted(result.shown, [&](int32_t a, int32_t b) { return before(a, b); });
}

// No coded sequence has two pictures of one place: another one goes on at the second of them.
bool FrameOrder::note_repeated_places() {
  std::vector<std::pair<int64_t, int32_t>> places;
  places.reserve(evidence_.places.size());
  for (size_t i = 0; i < evidence_.places.size(); ++i) {
    if (table_.packets[i].shown) places.emplace_back(*evidence_.places[i], static_cast<int32_t>(i));
  }
  std::ranges::sort(places);
  bool repeated = false;
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].first != places[i - 1].first) continue;
    evidence_.joints.push_back(places[i].second);
    repeated = true;
  }
  return repeated;
}

FrameOrder::Key FrameOrder::key_of(int32_t packet) const {
  const int64_t place = evidence_.places.empty() ? 0 : *evidence_.places[packet];
  return by_place_ ? Key{place, 0, packet} : Key{clock_.times[packet], place, packet};
}

bool FrameOrder::before(int32_t a, int32_t b) const { return key_of(a) < key_of(b); }

std::vector<int32_t> FrameOrder::sequence() const {
  std::vector<Key> keys;
  keys.reserve(table_.packets.size());
  for (size_t i = 0; i < table_.packets.size(); ++i) keys.push_back(key_of(static_cast<int32_t>(i)));
  std::sort(keys.begin(), keys.end());
  std::vector<int32_t> packets;
  packets.reserve(keys.size());
  for (const Key& key : keys) packets.push_back(key.packet);
  return packets;
}

void FrameOrder::find_starts() {
  const auto count = static_cast<int32_t>(table_.packets.size());
  const auto starts = [&](int32_t i) { return table_.packets[i].key && table_.packets[i].start == Start::kYes; };
  start_before_.resize(count);
  start_after_.resize(count);
  for (int32_t i = 0, start = 0; i < count; ++i) start_before_[i] = start = starts(i) ? i : start;
  for (int32_t i = count - 1, start = count; i >= 0; --i) start_after_[i] = std::exchange(start, starts(i) ? i : start);
}

int32_t FrameOrder::start_before(int32_t packet) const { return packet < 0 ? 0 : start_before_[packet]; }

int32_t FrameOrder::start_after(int32_t packet) const { return start_after_[packet]; }

int32_t FrameOrder::end_of_leading(int32_t start) const {
  const auto count = static_cast<int32_t>(table_.packets.size());
  const int32_t last = std::min(count, start + kLongestStart);
  int32_t packet = std::min(start + 1, count);
  while (packet < last && before(packet, start)) ++packet;
  return packet;
}

// Not so if the first packet is damaged: then its frame is.
bool FrameOrder::starts_torn() const {
  const Start start = table_.packets[0].start;
  return start == Start::kNo || start == Start::kGradual || start == Start::kIntra;
}

// Pictures may refer to others that are not there, or not come out at all.
bool FrameOrder::torn() const {
  // FFmpeg's decoder of MPEG-4 that has lost a B picture at the start loses others.
  const bool loses_more = parameters_.codec_id == AV_CODEC_ID_MPEG4 && end_of_leading(0) > 1;
  const bool miscounted = !ordered_ && evidence_.pictures != static_cast<int64_t>(table_.packets.size());
  return miscounted || starts_torn() || loses_more || repeats() || !evidence_.joints.empty() ||
         !clock_.set_back.empty();
}

// Two frames of one time are one packet twice, of which decoders that wait for B pictures lose one. Counts of pictures
// would have told.
bool FrameOrder::repeats() const {
  const AVCodecID codec = parameters_.codec_id;
  if (codec == AV_CODEC_ID_H264 || codec == AV_CODEC_ID_HEVC || never_reorders(codec)) return false;
  std::vector<int64_t> times;
  for (size_t i = 0; i < table_.packets.size(); ++i) {
    if (clock_.known[i] && table_.packets[i].is_frame()) times.push_back(clock_.times[i]);
  }
  std::ranges::sort(times);
  return std::ranges::adjacent_find(times) != times.end();
}

// At least so many as cost what any picture costs.
int64_t FrameOrder::pixels_of_picture() const {
  return std::max<int64_t>(int64_t{parameters_.width} * parameters_.height, 1 << 14);
}

bool FrameOrder::is_small() const {
  constexpr int64_t kMostPackets = 1 << 16;
  const int64_t pixels = pixels_of_picture();
  const auto packets = static_cast<int64_t>(table_.packets.size());
  return packets <= kMostPackets && pixels * packets <= kMostPixels;
}

// All of the stream is decoded from its first packet on, whatever is wanted: what comes out is what it has.
// Returns false if nothing does: then its frames are damaged.
bool FrameOrder::number_as_decoded() {
  const auto count = static_cast<int32_t>(table_.packets.size());
  const TrialResult result = try_packets(table_, parameters_, 0, count, deadline_);
  if (result.shown.empty()) return false;
  const auto expected = std::ranges::count_if(table_.packets, &Packet::is_frame);
  for (Packet& packet : table_.packets) packet.shown = false;
  for (const int32_t number : result.shown) {
    table_.packets[number].shown = true;
    table_.packets[number].frame = static_cast<int32_t>(frames_.size());
    frames_.push_back(number);
    pts_.push_back(clock_.times[number]);
  }
  std::ranges::sort(pts_);
  ordered_ = false;
  const std::string numbers = std::to_string(frames_.size()) + " of " + std::to_string(expected);
  doubts_.push_back(
      {"frames", numbers + " come out, decoded in a row: pictures may refer to others that are not there"});
  return true;
}

void FrameOrder::plan_trials() {
  const int32_t start_end = end_of_leading(starts_torn() ? start_after(0) : 0);
  if (starts_torn() || start_end > 1) add_trial(0, std::min(start_end, kLongestStart));
  std::vector<int32_t> joints = evidence_.joints;
  joints.insert(joints.end(), clock_.set_back.begin(), clock_.set_back.end());
  std::ranges::sort(joints);
  for (const int32_t joint : joints) {
    const bool starts = table_.packets[joint].start == Start::kYes;
    add_trial(start_before(joint - 1), end_of_leading(starts ? joint : start_after(joint)));
  }
}

void FrameOrder::add_trial(int32_t first, int32_t last) {
  if (!trials_.empty() && first < trials_.back().last) {
    trials_.back().last = std::max(trials_.back().last, last);
  } else {
    trials_.push_back({first, last, {}});
  }
}

void FrameOrder::try_all() {
  const int64_t most = std::min<int64_t>(kMostTried, kMostPixels / pixels_of_picture());
  int64_t tried = 0;
  std::erase_if(trials_, [&](Trial& trial) {
    tried += trial.last - trial.first;
    if (tried > most) return true;
    TrialResult result = try_packets(table_, parameters_, trial.first, trial.last, deadline_);
    trial.shown = std::move(result.shown);
    return !result.told || trial.shown.empty();  // where nothing comes out, frames are damaged
  });
}

// The frames of a trial come in the order in which they came out of it, the others as their times or packets say.
void FrameOrder::number() {
  std::vector<int32_t> packets = sequence();
  if (!trials_.empty()) move_trials(packets);
  for (int32_t order = 0; const int32_t number : packets) {
    Packet& packet = table_.packets[number];
    packet.order = order++;
    if (!packet.is_frame()) continue;
    packet.frame = static_cast<int32_t>(frames_.size());
    frames_.push_back(number);
    pts_.push_back(clock_.times[number]);
  }
  if (!std::ranges::is_sorted(pts_)) std::ranges::sort(pts_);
}

void FrameOrder::move_trials(std::vector<int32_t>& packets) {
  std::vector<Rank> ranks(packets.size());
  for (size_t i = 0; i < packets.size(); ++i) ranks[packets[i]].place = static_cast<int64_t>(i);
  for (const Trial& trial : trials_) apply(trial, ranks);
  for (int32_t parts = 0; Rank & rank : ranks) rank.part += parts += std::exchange(rank.parts_before, 0);
  std::ranges::sort(packets, {}, [&](int32_t packet) { return std::tuple(ranks[packet].part, ranks[packet].place); });
}

void FrameOrder::apply(const Trial& trial, std::vector<Rank>& ranks) {
  // What is shown before the start of a trial belongs to the frames before.
  const int32_t own = trial.first == 0 ? 0 : end_of_leading(trial.first);
  const auto is_own = [&](int32_t packet) { return packet == trial.first || packet >= own; };
  const std::set<int32_t> shown(trial.shown.begin(), trial.shown.end());
  int32_t hidden = 0;
  for (int32_t i = trial.first; i < trial.last; ++i) {
    if (!is_own(i)) continue;
    ++ranks[i].part;
    Packet& packet = table_.packets[i];
    packet.torn = i > trial.first || packet.start != Start::kYes;
    if (!packet.is_frame() || shown.contains(i)) continue;
    packet.shown = false;
    ++hidden;
  }
  if (trial.last < static_cast<int32_t>(ranks.size())) ranks[trial.last].parts_before = 2;
  for (size_t i = 0; i < trial.shown.size(); ++i) {
    if (is_own(trial.shown[i])) ranks[trial.shown[i]].place = static_cast<int64_t>(i);
  }
  if (hidden == 0) return;
  const std::string where = trial.first == 0 ? "at the start" : "from packet " + std::to_string(trial.first) + " on";
  doubts_.push_back({"frames", std::to_string(hidden) + " " + where + " refer to pictures that are not there"});
}

}  // namespace flashcodec
