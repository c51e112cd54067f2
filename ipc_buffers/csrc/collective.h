#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "arena.h"
#include "futex.h"
#include "spin.h"

namespace ipc {

struct CollectiveError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The upper half of a float32, as torch.bfloat16 keeps it.
enum class Bfloat16 : std::uint16_t {};

// Ranks that do the same operations in the same order, and exchange what these need through shared memory.
//
// Each rank writes to two slots of its own in turn, and reads those of the others. It counts its steps in a word that
// the others wait on: nobody writes to a slot before all have left the operation that used it last. Sums are taken in
// the order of the ranks, so that they are the same on all of them and at any timing.
class Collective {
 public:
  static constexpr std::int64_t kMostRanks = 64;

  // For so many ranks, of which each has slots of so many bytes; larger operands go in pieces.
  static std::shared_ptr<Arena> create(const std::string& name, std::int64_t ranks, std::int64_t slot_bytes);

  // Each rank joins once.
  Collective(std::shared_ptr<Arena> arena, std::int64_t rank);

  const ArenaIdentity& identity() const { return arena_->identity(); }
  std::size_t ranks() const;
  std::size_t rank() const { return rank_; }

  // All throw CollectiveError at the deadline, with the ranks that have not come; then no further operation is right.
  void all_reduce(std::span<float> values, TimePoint deadline);
  void all_reduce(std::span<Bfloat16> values, TimePoint deadline);
  // `all` has room for as many bytes of each rank, in their order.
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all, TimePoint deadline);
  // The same on the rank `root` alone; the others need no room.
  void gather(std::size_t root, std::span<const std::byte> own, std::span<std::byte> all, TimePoint deadline);
  void broadcast(std::size_t root, std::span<std::byte> bytes, TimePoint deadline);
  void barrier(TimePoint deadline);

 private:
  struct Head;
  struct Rank;

  template <typename Value>
  void reduce(std::span<Value> values, TimePoint deadline);
  template <typename Value>
  void reduce_small(std::span<Value> values, TimePoint deadline);
  template <typename Value>
  void reduce_large(std::span<Value> values, TimePoint deadline);

  void check_room(const char* operation, std::size_t own, std::size_t all) const;
  void check_root(std::size_t root) const;
  // Puts the operand into this rank's slot.
  void offer(std::span<const std::byte> operand, TimePoint deadline);
  // Copies what each rank has put there to its place from `start` on, of parts of so many bytes.
  void collect(std::span<std::byte> all, std::size_t part, std::size_t start, std::size_t bytes, TimePoint deadline);

  // Returns when this rank may write to its next slot.
  void begin(TimePoint deadline);
  // Tells the others that this rank has come so far.
  void arrive();
  void wait_for_all(std::uint64_t steps, TimePoint deadline);
  void wait_for(std::size_t rank, std::uint64_t steps, TimePoint deadline);
  std::byte* slot(std::size_t rank) const;

  std::shared_ptr<Arena> arena_;
  Head* head_;
  std::size_t rank_;
  std::uint64_t steps_ = 0;  // of this rank
  std::uint64_t began_ = 0;  // the step at which the last operation had its operands in place
  std::uint64_t operations_ = 0;
  Spin spin_;
};

}  // namespace ipc
