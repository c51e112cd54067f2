"""GPUs whose co-running stages slow each other, with video engines of their own, and the host beside them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from math import prod

from unifiedserve.placement import Stage
from unifiedserve.scheduling.simulation.machine import Cores, Demand

Interference = Mapping[Stage, Mapping[Stage, float]]
_NONE: Interference = {}


class Gpus:
    """GPUs under MPS: all that is there runs at once, and slows the others.

    `interference[stage][other]` is how many times longer a stage takes beside another one on the same GPU, 1.0 where it
    is not given (UnifiedServe, Fig. 6). Beside several their factors multiply. A GPU decodes as many segments of videos
    at once as it has `video_engines`; they take nothing of each other's speed, and slow the other stages once, however
    many they are. Images are decoded on the host, which has as many `cores` as are wanted if it is 0.
    """

    rests = False

    def __init__(self, count: int, video_engines: int, interference: Interference = _NONE, cores: int = 0) -> None:
        """Raises ValueError without a GPU."""
        if count < 1:
            raise ValueError(f"{count} GPUs: at least one computes")
        self.count = count
        self._engines = video_engines
        self._interference = interference
        self._cores = cores
        self._host = Cores(cores) if cores else None
        self.rates = cache(self._rates)

    def threads(self, giving: bool) -> int:
        """Return 1: a stage takes a GPU, or a core of the host."""
        return 1

    def decoders(self, threads: int) -> int:
        """Return how many segments an instance decodes at once: one on each video engine, or on the host's cores."""
        return self._engines or self._cores or threads

    def _rates(self, demands: tuple[Demand, ...]) -> Sequence[float]:
        host = [demand for demand in demands if self._is_on_host(demand)]
        shares = iter(self._host.rates(tuple(host)) if self._host else [1.0] * len(host))
        there = Counter((demand.device, demand.stage) for demand in demands)
        return [next(shares) if self._is_on_host(each) else self._rate(each, there) for each in demands]

    def _is_on_host(self, demand: Demand) -> bool:
        return demand.device is None or (demand.stage is Stage.VISION and not self._engines)

    def _rate(self, own: Demand, there: Counter[tuple[int | None, Stage | None]]) -> float:
        rows: Mapping[Stage, float] = self._interference.get(own.stage, {}) if own.stage else {}
        beside = {stage: count for (device, stage), count in there.items() if device == own.device and stage}
        if segments := beside.pop(Stage.VISION, 0) if self._engines else 0:
            beside |= {Stage.VISION: 1} if own.stage is not Stage.VISION else {}
        if own.stage in beside:
            beside[own.stage] -= 1
        slower = prod(rows.get(stage, 1.0) ** count for stage, count in beside.items())
        waiting = max(1.0, segments / self._engines) if own.stage is Stage.VISION else 1.0
        return 1.0 / (slower * waiting)
