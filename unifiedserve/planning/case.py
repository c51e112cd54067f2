"""Describe what is planned for, and simulate candidates: requests with targets, a model on hardware."""

from collections.abc import Collection, Sequence
from functools import cached_property
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from unifiedserve.bench.records import Record
from unifiedserve.bench.slo import Slo
from unifiedserve.config import EngineConfig
from unifiedserve.placement import Placement, Stage
from unifiedserve.planning.arrivals import arrivals_of, at_rate
from unifiedserve.planning.candidates import Candidate
from unifiedserve.planning.objective import Latencies, last_due, latencies
from unifiedserve.planning.pages import free_pages, is_refused, kv_mib
from unifiedserve.planning.work import prompt_tokens
from unifiedserve.planning.workload import Workload
from unifiedserve.profiles import HardwareProfile
from unifiedserve.scheduling import Targets, budget_of
from unifiedserve.scheduling.simulation import Cores, Gpus, Rules, Sharing, Simulated, Simulator

_LOOKS = 16  # at the requests that have failed while a run goes on
_ROUNDING = 1e-9
_TAIL_STEP = 1.0  # seconds


class TimeUpError(Exception):
    """Signal a simulation that has not ended in its time."""


class Run(NamedTuple):
    """Hold what clients would have recorded, and how busy each stage's workers were.

    The latter is a part of the time.
    """

    records: list[Record]
    busy: dict[Stage, float]


class Case:
    """Hold requests with targets, and a model on hardware. The workload has the former, the profile the latter."""

    def __init__(self, profile: HardwareProfile, workload: Workload, slo: Slo, frames: int | None = None) -> None:
        """Raise ConfigError if the profile does not know the workload's media."""
        self.profile, self.workload, self.slo = profile, workload, slo
        self.arrivals = arrivals_of(workload, profile, frames)
        self._refused: dict[tuple[int, bool], frozenset[int]] = {}  # by pages of the KV cache, and whether media roll

    @property
    def tokens(self) -> list[int]:
        """Return the tokens of each answer."""
        return [each.generate for each in self.arrivals]

    def records(self, rate: float, tokens: Sequence[Sequence[float]]) -> list[Record]:
        """Return the requests at a rate as a client would record them, with `tokens`' times (seconds)."""
        return [
            Record(
                request=str(uid),
                kind=size.kind,
                due=at / rate,
                sent=at / rate,
                token_times=list(times),
                ended=times[-1] if times else 0.0,
                prompt_tokens=prompt_tokens(arrival, self.profile),
                video_seconds=sum(size.seconds),
            )
            for uid, (size, at, arrival, times) in enumerate(
                zip(self.workload.requests, self.workload.times, self.arrivals, tokens, strict=True)
            )
        ]

    def options(self, candidate: Candidate) -> dict[str, Any]:
        """Return the options of a candidate's server, but for its placement."""
        cpu = self.profile.device.kind == "cpu" and self.profile.device.memory_gib
        memory = {"kv_cache_mib": kv_mib(self.profile, candidate.table(self.profile.device.cores))} if cpu else {}
        return candidate.options | (self.target_options if candidate.targets else {}) | memory

    @cached_property
    def target_options(self) -> dict[str, float]:
        """Return the targets as options of a server, which has them in milliseconds."""
        given: dict[str, float] = {}
        if self.slo.ttft is not None:
            given |= {
                "slo_ttft": round(1000 * self.slo.ttft, 3),
                "slo_ttft_visual": round(1000 * self._per_visual_token, 3),
            }
        if self.slo.tbt is not None:
            given["slo_tbt"] = round(1000 * self.slo.tbt, 3)
        return given

    @property
    def _per_visual_token(self) -> float:
        """Return the mean seconds that a visual token adds to the first token's target."""
        visual = sum(sum(each.units) for each in self.arrivals)
        seconds = sum(sum(each.seconds) for each in self.workload.requests)
        return self.slo.ttft_per_prompt_token + (self.slo.ttft_per_video_second * seconds / visual if visual else 0.0)

    def fits(self, candidate: Candidate) -> bool:
        """Tell whether the weights leave room for a KV cache on every device."""
        return free_pages(self.profile, candidate.table(self.profile.device.cores)) is not None

    def refused(self, candidate: Candidate) -> frozenset[int]:
        """Return the uids of requests that a candidate has too few pages for.

        Its server refuses them: a client sees no token.
        """
        placement = candidate.table(self.profile.device.cores)
        if (free := free_pages(self.profile, placement)) is None:
            return frozenset()
        key = free.kv, len(placement.memories) == 1
        if key not in self._refused:
            uids = (
                each.ticket.uid
                for each in self.arrivals
                if is_refused(each, prompt_tokens(each, self.profile), free, rolls=key[1])
            )
            self._refused[key] = frozenset(uids)
        return self._refused[key]

    def simulate(self, candidate: Candidate, rate: float, goal: float | None = None, until: float = inf) -> Run | None:
        """Return what clients would see; None as soon as less than `goal` of the requests can hold their targets.

        Raises TimeUpError if it goes on after `until` (monotonic seconds).
        """
        placement, costs = candidate.table(self.profile.device.cores), self.profile.costs
        config, free = EngineConfig.of(**self.options(candidate)), free_pages(self.profile, placement)
        assert free is not None, "what does not fit is not simulated"
        refused = self.refused(candidate)
        sharing = sharing_of(self.profile, candidate.devices)
        budget = budget_of(config, free.kv, costs.lone_step or costs.decode(1, 1), rests=sharing.rests)
        simulator = Simulator(
            placement,
            budget,
            free,
            [each for each in at_rate(self.arrivals, rate) if each.ticket.uid not in refused],
            costs,
            sharing,
            targets=Targets(config),
            rules=Rules(keeps_visual=self.profile.model_sizes.keeps_visual),
            dual_streams=candidate.runs_dual(self.profile.device.kind),
        )
        if goal is not None and self._fails(simulator, refused, rate, goal, until):
            return None
        self._finish(simulator, rate, until)
        tokens = simulator.tokens
        records = self.records(rate, [tokens.get(uid, []) for uid in range(len(self.arrivals))])
        return Run(records, _busy(Simulated.of(simulator.system), placement, sharing))

    def latencies(self, run: Run) -> Latencies:
        """Return the figures of a run."""
        return latencies(run.records, self.tokens, self.slo, run.busy)

    def _finish(self, simulator: Simulator, rate: float, until: float) -> None:
        """Let a run go on to its end. It looks at the clock while requests come and a while after."""
        step = self.workload.times[-1] / rate / _LOOKS + _TAIL_STEP
        for look in range(1, 2 * _LOOKS + 1):
            _run(simulator, look * step, until)
        simulator.run()

    def _fails(self, simulator: Simulator, refused: Collection[int], rate: float, goal: float, until: float) -> bool:
        """Let a run go on to its last deadline, or until too many miss one."""
        requests = self.records(rate, [[]] * len(self.arrivals))
        first = [record.due + self.slo.ttft_of(record) for record in requests]
        last = [last_due(record, self.slo, tokens) for record, tokens in zip(requests, self.tokens, strict=True)]
        for now in _looks(max(first), max(last)):
            _run(simulator, now, until)
            tokens, open_ = simulator.tokens, set(simulator.unfinished)
            late = len(refused) + sum(
                min(times[:1] or [now]) > first[uid] or (uid in open_ and last[uid] <= now)
                for uid, times in tokens.items()
            )
            if late > (1 - goal) * len(requests) + _ROUNDING:
                return True
        return False


def _run(simulator: Simulator, to: float, until: float) -> None:
    """Let a run go on to a time. Raises TimeUpError after `until` (monotonic seconds)."""
    simulator.run(until=to)
    if monotonic() > until:
        raise TimeUpError


def _looks(first: float, last: float) -> list[float]:
    """Return the times at which to look for requests that have failed: most while first tokens are due."""
    times = [first * look / _LOOKS for look in range(1, _LOOKS + 1)] if first < inf else []
    return [*times, last] if last < inf else times


def _busy(simulated: Simulated, placement: Placement, sharing: Sharing) -> dict[Stage, float]:
    """Return the part of the time that each stage's workers had work. Decoders of media count, too."""
    workers = {stage: float(len(placement.hosts(stage))) for stage in Stage}
    hosts = [each for each in placement.instances if Stage.VISION in each.stages]
    workers[Stage.VISION] = sum(sharing.decoders(each.threads(sharing.threads(giving=False))) for each in hosts)
    return {stage: min(1.0, simulated.busy.get(stage, 0.0) / workers[stage]) for stage in Stage}


def sharing_of(profile: HardwareProfile, devices: int) -> Sharing:
    """Return the hardware that is shared: so many GPUs, or the cores of one machine."""
    if profile.device.kind == "cpu":
        return Cores(profile.device.cores, profile.costs.waste)
    return Gpus(devices, profile.device.video_engines, profile.interference)
