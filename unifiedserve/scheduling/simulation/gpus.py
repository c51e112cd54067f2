"""Model GPUs whose co-running stages slow each other. They have video engines, and the host beside them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from math import prod

from unifiedserve.placement import Stage
from unifiedserve.scheduling.simulation.machine import Cores, Demand

Interference = Mapping[Stage, Mapping[Stage, float]]
_NONE: Interference = {}


class Gpus:
    """Model GPUs under MPS: all work there runs at once, and slows the rest.

    `interference[stage][other]` is how many times longer a stage takes beside another one on the same GPU, 1.0 where it
    is not given (UnifiedServe, Fig. 6). Beside several their factors multiply. A GPU decodes as many segments of videos
    at once as it has `video_engines`; they take nothing of each other's speed, and slow the other stages once, however
    many they are. Images are decoded on the host, which has as many `cores` as are wanted if it is 0.
    """

    rests = False

    def __init__(self, count: int, video_engines: int, interference: Interference = _NONE, cores: int = 0) -> None:
        """Raise ValueError without a GPU."""
        if count < 1:
            raise ValueError(f"{count} GPUs: at least one computes")
        self.count = count
        self._engines = video_engines
        self._interference = interference
        self._cores = cores
        self._host = Cores(cores) if cores else None
        self._rates_of = cache(self._on_one)

    def threads(self, giving: bool) -> int:
        """Return 1: a stage takes a GPU, or a core of the host."""
        return 1

    def decoders(self, threads: int) -> int:
        """Return how many segments an instance decodes at once: one on each video engine, or on the host's cores."""
        return self._engines or self._cores or threads

    def rates(self, demands: tuple[Demand, ...]) -> Sequence[float]:
        """Return how fast each goes when all of them run: 1.0 as alone."""
        there: dict[int, tuple[Stage, ...]] = {}
        host = []
        for demand in demands:
            if demand.device is None or demand.stage is None or (demand.stage is Stage.VISION and not self._engines):
                host.append(demand)
            else:
                there[demand.device] = (*there.get(demand.device, ()), demand.stage)
        rates = {device: iter(self._rates_of(stages)) for device, stages in there.items()}
        host_rates = iter(self._host.rates(tuple(host)) if self._host else [1.0] * len(host))
        return [next(host_rates if each in host else rates[each.device or 0]) for each in demands]

    def _on_one(self, stages: tuple[Stage, ...]) -> list[float]:
        """Return how fast these go that share a GPU."""
        return [self._rate(own, Counter(stages)) for own in stages]

    def _rate(self, own: Stage, beside: Counter[Stage]) -> float:
        segments = beside.pop(Stage.VISION, 0)
        row, waiting = self._interference.get(own, {}), 1.0
        if own is Stage.VISION:
            waiting = max(1.0, segments / self._engines)
        else:
            beside[own] -= 1
            beside[Stage.VISION] = min(1, segments)
        return 1.0 / prod((row.get(stage, 1.0) ** count for stage, count in beside.items()), start=waiting)
