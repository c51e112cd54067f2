"""Report a simulation: when tokens come, and what was busy and waited meanwhile."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from unifiedserve.placement import Stage
from unifiedserve.scheduling.simulation.system import System, Travel


@dataclass(frozen=True, slots=True)
class Simulated:
    """Report what clients saw of requests, by uid, and what the engine did meanwhile.

    All times are seconds. `busy` are how many pieces of each stage's work ran, on average: of a stage with three
    instances at most three, of vision as many as decoders. `devices` are the parts of the time in which each GPU had
    work; without GPUs all cores are device 0. `travel` is what was read from other memories.
    """

    arrived: Mapping[int, float]
    tokens: Mapping[int, Sequence[float]]
    waits: Mapping[int, Mapping[Stage, float]]
    seconds: float
    busy: Mapping[Stage, float]
    devices: Mapping[int, float]
    travel: Travel

    @property
    def ttft(self) -> dict[int, float]:
        """Return the seconds to the first token of each request that has one."""
        return {uid: times[0] - self.arrived[uid] for uid, times in self.tokens.items() if times}

    @property
    def mean_waits(self) -> dict[Stage, float]:
        """Return the mean seconds that a request waits for each stage. Only requests that go through it count."""
        found = {stage: [own[stage] for own in self.waits.values() if stage in own] for stage in Stage}
        return {stage: mean(seconds) for stage, seconds in found.items() if seconds}

    @classmethod
    def of(cls, system: System) -> "Simulated":
        """Return what has become of the requests of an engine so far."""
        seconds = system.clock.now
        asked = {request.arrival.ticket.uid: request for request in system.requests.values()}
        busy, devices = defaultdict[Stage, float](float), defaultdict[int, float](float)
        for demands, took in system.machine.seconds.items() if seconds else ():
            for stage, count in Counter(demand.stage for demand in demands if demand.stage).items():
                busy[stage] += count * took / seconds
            for device in {demand.device for demand in demands if demand.device is not None}:
                devices[device] += took / seconds
        return cls(
            arrived={uid: request.arrival.ticket.arrival for uid, request in asked.items()},
            tokens={uid: request.tokens for uid, request in asked.items()},
            waits={uid: system.waits.of(uid) for uid in asked},
            seconds=seconds,
            busy=busy,
            devices=devices,
            travel=system.travel,
        )
