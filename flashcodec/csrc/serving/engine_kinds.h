// The kinds of engines that a scheduler has, and which of them decode a request.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <vector>

#include "engines/backends.h"
#include "plan/engine_choice.h"
#include "serving/request.h"

namespace flashcodec {

struct EngineKind {
  std::unique_ptr<const Backend> backend;
  int engines;
};

struct KindEstimate {
  const EngineKind* kind;
  Estimate time;
  bool chosen = false;
};

// A kind that works on a request. `speed`: of one engine, in microseconds of CPU time that a microsecond does.
struct Share {
  const EngineKind* kind;
  std::chrono::microseconds opening;
  double speed;
};

using Refused = std::set<const EngineKind*>;

class EngineKinds {
 public:
  // `engines` of each backend that leaves it to the caller; 0: as many as suit the machine.
  EngineKinds(Backends backends, int engines);

  const std::vector<EngineKind>& list() const { return kinds_; }
  // How many engines there are, of all kinds.
  int engines() const;

  // How long each kind takes over these frames, of those that can decode the stream, may and have not refused it.
  std::vector<KindEstimate> estimate(const Bitstream& stream, std::span<const int64_t> frames, DecodeOn wish,
                                     const Refused& refused) const;
  // The kinds that should share a request; empty if none is left.
  std::vector<Share> choose(const Request& request, const Refused& refused) const;

 private:
  std::vector<EngineKind> kinds_;
};

}  // namespace flashcodec
