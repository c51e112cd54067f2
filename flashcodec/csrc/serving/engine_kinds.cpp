#include "serving/engine_kinds.h"

#include <algorithm>

#include "plan/cost_model.h"

namespace flashcodec {

EngineKinds::EngineKinds(Backends backends, int engines) {
  for (auto& backend : backends) {
    const int count = backend->engines(engines);
    kinds_.push_back({std::move(backend), count});
  }
}

int EngineKinds::engines() const {
  int count = 0;
  for (const EngineKind& kind : kinds_) count += kind.engines;
  return count;
}

std::vector<KindEstimate> EngineKinds::estimate(const Bitstream& stream, std::span<const int64_t> frames, DecodeOn wish,
                                                const Refused& refused) const {
  const PacketCount packets = estimate_packets(stream, find_runs(stream, frames), frames);
  std::vector<KindEstimate> able;
  std::vector<Estimate> times;
  for (const EngineKind& kind : kinds_) {
    const bool wanted = wish == DecodeOn::kFastest || kind.backend->on_gpu() == (wish == DecodeOn::kGpu);
    if (!wanted || refused.contains(&kind) || !kind.backend->decodes(stream)) continue;
    times.push_back(kind.backend->estimate(stream, packets, kind.engines));
    able.push_back({&kind, times.back()});
  }
  for (const size_t i : choose_kinds(times)) able[i].chosen = true;
  return able;
}

std::vector<Share> EngineKinds::choose(const Request& request, const Refused& refused) const {
  const bool sole = kinds_.size() == 1 && request.options().decode_on == DecodeOn::kFastest && refused.empty();
  if (sole) return {{kinds_.data(), {}, 1}};
  const Bitstream& stream = *request.stream();
  const auto work = static_cast<double>(CostModel(stream).of(request.runs()));
  std::vector<Share> shares;
  for (const auto& [kind, time, chosen] : estimate(stream, request.frames(), request.options().decode_on, refused)) {
    const double rate = work / std::max(1.0, static_cast<double>(time.decoding.count()));
    if (chosen) shares.push_back({kind, time.opening, rate / kind->engines});
  }
  return shares;
}

}  // namespace flashcodec
