#include "collective.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "native/instruction_sets.h"

namespace ipc {

struct alignas(64) Collective::Rank {
  WaitablePosition steps;
};

struct Collective::Head {
  std::uint64_t ranks;
  std::uint64_t slot_bytes;
  std::array<Rank, kMostRanks> each;
};

namespace {

using std::chrono::microseconds;

constexpr std::size_t kLine = 64;
constexpr std::int64_t kMostSlotBytes = std::int64_t{1} << 30;
constexpr std::size_t kSmall = std::size_t{32} << 10;   // bytes; below it each rank sums everything up
constexpr std::size_t kPiece = std::size_t{256} << 10;  // bytes: slots of two fit into a core's second cache
constexpr std::size_t kBlock = 256;                     // values that are summed up at a time
constexpr auto kLooking = microseconds(200);            // for ranks that compute the same take about as long

float widen(float value) { return value; }
float widen(Bfloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16); }

void narrow(float value, float& to) { to = value; }

// Rounds to the nearest, ties to even; NaN stays NaN.
void narrow(float value, Bfloat16& to) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const auto quiet = (bits >> 16) | 0x40U;
  to = static_cast<Bfloat16>(value == value ? rounded : quiet);
}

template <typename Value>
using Sources = std::span<const Value* const>;

// Sets `sums`, and `copy` unless it is null, to the sums of two sources, of which `sums` may be one.
template <typename Value>
[[gnu::always_inline]] inline void add_two(std::span<Value> sums, Value* copy, const Value* one, const Value* other) {
  Value* to = sums.data();
  const auto size = sums.size();
  if (copy == nullptr) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < size; ++i) narrow(widen(one[i]) + widen(other[i]), to[i]);
  } else {
#pragma GCC ivdep
    for (std::size_t i = 0; i < size; ++i) {
      narrow(widen(one[i]) + widen(other[i]), to[i]);
      copy[i] = to[i];
    }
  }
}

// The same of all sources, in their order. It is inlined where the compiler may use more instructions.
template <typename Value>
[[gnu::always_inline]] inline void add_up(std::span<Value> sums, Value* copy, Sources<Value> sources) {
  if (sources.size() == 2) return add_two(sums, copy, sources[0], sources[1]);
  std::array<float, kBlock> block;
  for (std::size_t start = 0; start < sums.size(); start += kBlock) {
    const auto count = std::min(kBlock, sums.size() - start);
    const Value* first = sources[0] + start;
    for (std::size_t i = 0; i < count; ++i) block[i] = widen(first[i]);
    for (const Value* source : sources.subspan(1)) {
      for (std::size_t i = 0; i < count; ++i) block[i] += widen(source[start + i]);
    }
    Value* to = sums.data() + start;
    for (std::size_t i = 0; i < count; ++i) narrow(block[i], to[i]);
    if (copy != nullptr) std::memcpy(copy + start, to, count * sizeof(Value));
  }
}

#if defined(__x86_64__)
template <typename Value>
[[gnu::target("avx2")]] void add_up_avx2(std::span<Value> sums, Value* copy, Sources<Value> sources) {
  add_up(sums, copy, sources);
}

template <typename Value>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void add_up_avx512(std::span<Value> sums, Value* copy,
                                                                         Sources<Value> sources) {
  add_up(sums, copy, sources);
}
#endif

template <typename Value>
void sum(std::span<Value> sums, Value* copy, Sources<Value> sources) {
#if defined(__x86_64__)
  static const bool avx512 = native::has_avx512();
  static const bool avx2 = native::has_avx2();
  if (avx512) return add_up_avx512(sums, copy, sources);
  if (avx2) return add_up_avx2(sums, copy, sources);
#endif
  add_up(sums, copy, sources);
}

// The part of `size` values that a rank sums up, in whole cache lines.
template <typename Value>
std::pair<std::size_t, std::size_t> part_of(std::size_t size, std::size_t rank, std::size_t ranks) {
  constexpr auto kUnit = kLine / sizeof(Value);
  const auto units = (size + kUnit - 1) / kUnit;
  const auto bound = [&](std::size_t number) { return std::min(size, units * number / ranks * kUnit); };
  return {bound(rank), bound(rank + 1)};
}

}  // namespace

std::shared_ptr<Arena> Collective::create(const std::string& name, std::int64_t ranks, std::int64_t slot_bytes) {
  if (ranks < 1 || ranks > kMostRanks) {
    throw std::invalid_argument("collective '" + name + "': there can be 1 to " + std::to_string(kMostRanks) +
                                " ranks, not " + std::to_string(ranks));
  }
  if (slot_bytes < 1 || slot_bytes > kMostSlotBytes) {
    throw std::invalid_argument("collective '" + name + "': a slot has 1 to " + std::to_string(kMostSlotBytes) +
                                " bytes, not " + std::to_string(slot_bytes));
  }
  const auto bytes = (static_cast<std::size_t>(slot_bytes) + kLine - 1) / kLine * kLine;
  const auto all = static_cast<std::size_t>(ranks) * 2 * bytes;
  return Arena::create(name, ArenaKind::collective, sizeof(Head) + all, [&](std::span<std::byte> payload) {
    auto& head = *reinterpret_cast<Head*>(payload.data());
    head.ranks = static_cast<std::uint64_t>(ranks);
    head.slot_bytes = bytes;
  });
}

Collective::Collective(std::shared_ptr<Arena> arena, std::int64_t rank)
    : arena_(std::move(arena)), head_(reinterpret_cast<Head*>(arena_->payload().data())) {
  if (rank < 0 || static_cast<std::uint64_t>(rank) >= head_->ranks) {
    throw std::invalid_argument("collective '" + identity().name + "' has ranks 0 to " +
                                std::to_string(head_->ranks - 1) + ", not " + std::to_string(rank));
  }
  rank_ = static_cast<std::size_t>(rank);
  if (head_->each[rank_].steps.load() != 0) {
    throw std::invalid_argument("collective '" + identity().name + "': rank " + std::to_string(rank) +
                                " has been at work before");
  }
}

std::size_t Collective::ranks() const { return head_->ranks; }

void Collective::all_reduce(std::span<float> values, TimePoint deadline) { reduce(values, deadline); }

void Collective::all_reduce(std::span<Bfloat16> values, TimePoint deadline) { reduce(values, deadline); }

template <typename Value>
void Collective::reduce(std::span<Value> values, TimePoint deadline) {
  const auto most = std::min<std::size_t>(head_->slot_bytes, kPiece) / sizeof(Value);
  for (; !values.empty(); values = values.subspan(std::min(most, values.size()))) {
    const auto piece = values.first(std::min(most, values.size()));
    if (piece.size_bytes() <= kSmall) {
      reduce_small(piece, deadline);
    } else {
      reduce_large(piece, deadline);
    }
  }
}

template <typename Value>
void Collective::reduce_small(std::span<Value> values, TimePoint deadline) {
  begin(deadline);
  std::memcpy(slot(rank_), values.data(), values.size_bytes());
  arrive();
  began_ = steps_;
  wait_for_all(steps_, deadline);
  std::array<const Value*, kMostRanks> sources;
  for (std::size_t rank = 0; rank < ranks(); ++rank) sources[rank] = reinterpret_cast<const Value*>(slot(rank));
  sum<Value>(values, nullptr, Sources<Value>(sources.data(), ranks()));
}

// Each rank sums up a part, which lies in its slot then, where the others have theirs from it.
template <typename Value>
void Collective::reduce_large(std::span<Value> values, TimePoint deadline) {
  begin(deadline);
  const auto [from, to] = part_of<Value>(values.size(), rank_, ranks());
  auto* own = reinterpret_cast<Value*>(slot(rank_));
  std::copy(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(from), own);
  std::copy(values.begin() + static_cast<std::ptrdiff_t>(to), values.end(), own + to);
  arrive();
  began_ = steps_;
  wait_for_all(steps_, deadline);
  const auto part = values.subspan(from, to - from);
  std::array<const Value*, kMostRanks> sources;
  for (std::size_t rank = 0; rank < ranks(); ++rank) sources[rank] = reinterpret_cast<const Value*>(slot(rank)) + from;
  sources[rank_] = part.data();
  sum<Value>(part, own + from, Sources<Value>(sources.data(), ranks()));
  arrive();
  for (std::size_t offset = 1; offset < ranks(); ++offset) {
    const auto rank = (rank_ + offset) % ranks();
    wait_for(rank, steps_, deadline);
    const auto [start, end] = part_of<Value>(values.size(), rank, ranks());
    const auto* summed = reinterpret_cast<const Value*>(slot(rank));
    std::copy(summed + start, summed + end, values.begin() + static_cast<std::ptrdiff_t>(start));
  }
}

void Collective::all_gather(std::span<const std::byte> own, std::span<std::byte> all, TimePoint deadline) {
  check_room("all_gather", own.size(), all.size());
  for (std::size_t start = 0; start < own.size(); start += head_->slot_bytes) {
    const auto piece = own.subspan(start, std::min<std::size_t>(head_->slot_bytes, own.size() - start));
    offer(piece, deadline);
    collect(all, own.size(), start, piece.size(), deadline);
  }
}

void Collective::gather(std::size_t root, std::span<const std::byte> own, std::span<std::byte> all,
                        TimePoint deadline) {
  check_root(root);
  if (rank_ == root) check_room("gather", own.size(), all.size());
  for (std::size_t start = 0; start < own.size(); start += head_->slot_bytes) {
    const auto piece = own.subspan(start, std::min<std::size_t>(head_->slot_bytes, own.size() - start));
    offer(piece, deadline);
    if (rank_ == root) collect(all, own.size(), start, piece.size(), deadline);
  }
}

void Collective::check_room(const char* operation, std::size_t own, std::size_t all) const {
  if (all == own * ranks()) return;
  throw std::invalid_argument(std::string(operation) + " of " + std::to_string(own) + " bytes a rank needs room for " +
                              std::to_string(own * ranks()) + ", not " + std::to_string(all));
}

void Collective::check_root(std::size_t root) const {
  if (root >= ranks()) throw std::invalid_argument("there is no rank " + std::to_string(root));
}

void Collective::offer(std::span<const std::byte> operand, TimePoint deadline) {
  begin(deadline);
  std::memcpy(slot(rank_), operand.data(), operand.size());
  arrive();
  began_ = steps_;
}

void Collective::collect(std::span<std::byte> all, std::size_t part, std::size_t start, std::size_t bytes,
                         TimePoint deadline) {
  for (std::size_t offset = 0; offset < ranks(); ++offset) {
    const auto rank = (rank_ + offset) % ranks();
    wait_for(rank, steps_, deadline);
    std::memcpy(all.data() + rank * part + start, slot(rank), bytes);
  }
}

void Collective::broadcast(std::size_t root, std::span<std::byte> bytes, TimePoint deadline) {
  check_root(root);
  for (; !bytes.empty(); bytes = bytes.subspan(std::min<std::size_t>(head_->slot_bytes, bytes.size()))) {
    const auto piece = bytes.first(std::min<std::size_t>(head_->slot_bytes, bytes.size()));
    begin(deadline);
    if (rank_ == root) std::memcpy(slot(root), piece.data(), piece.size());
    arrive();
    began_ = steps_;
    wait_for(root, steps_, deadline);
    if (rank_ != root) std::memcpy(piece.data(), slot(root), piece.size());
  }
}

void Collective::barrier(TimePoint deadline) {
  begin(deadline);
  arrive();
  began_ = steps_;
  wait_for_all(steps_, deadline);
}

void Collective::begin(TimePoint deadline) {
  wait_for_all(began_, deadline);  // who has come to the last operation reads nothing of the one before
  ++operations_;
}

void Collective::arrive() {
  auto& own = head_->each[rank_].steps;
  own.advance(++steps_);
  own.wake();
}

void Collective::wait_for_all(std::uint64_t steps, TimePoint deadline) {
  for (std::size_t rank = 0; rank < ranks(); ++rank) wait_for(rank, steps, deadline);
}

void Collective::wait_for(std::size_t rank, std::uint64_t steps, TimePoint deadline) {
  auto& position = head_->each[rank].steps;
  if (position.load() >= steps) return;
  const auto start = now();
  const auto looks = [&] { return position.core() == current_core() ? 1 : 64; };
  if (spin_.until([&] { return position.load() >= steps; }, looks, std::min(deadline, start + kLooking))) return;
  for (auto seen = position.load(); seen < steps; seen = position.load()) {
    if (!position.wait(seen, deadline) && now() >= deadline) {
      throw CollectiveError("collective '" + identity().name + "': rank " + std::to_string(rank) +
                            " has not come to step " + std::to_string(steps) + "; it is at " +
                            std::to_string(position.load()));
    }
  }
}

std::byte* Collective::slot(std::size_t rank) const {
  const auto number = 2 * rank + operations_ % 2;
  return reinterpret_cast<std::byte*>(head_ + 1) + number * head_->slot_bytes;
}

}  // namespace ipc
