"""What a paper's instances run on: a device each."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from unifiedserve.placement import Instance, Placement, Stage
from unifiedserve.placement.parts import split_parts, stages_of
from unifiedserve.scheduling.simulation.machine import Demand

_HOST = 999  # the number of the host's cores, on which media are decoded and nobody waits for anybody


class Devices:
    """One device for each instance; what runs at once on one goes at `beside` of its speed. The host has no limit."""

    rests = False

    def __init__(self, beside: float = 1.0) -> None:
        self._beside = beside
        self.rates = cache(self._rates)

    def threads(self, giving: bool) -> int:
        return 1

    def _rates(self, demands: tuple[Demand, ...]) -> Sequence[float]:
        there = Counter(demand.cores for demand in demands)
        shared = {cores for cores, count in there.items() if count > 1 and cores and cores != (_HOST,)}
        return [self._beside if demand.cores in shared else 1.0 for demand in demands]


def placement(text: str, *, irp: bool = False) -> Placement:
    """Return a placement such as `5ep+3d`, with a device for each instance; media are decoded on the host.

    With `irp` encoders have one memory, so that the units of a request are spread over them; else each instance has
    its own, and pages travel between all of them.
    """
    instances = [Instance("host", (Stage.VISION,), (_HOST,))]
    for part in split_parts(text):
        for _ in range(part.count):
            number, stages = len(instances) - 1, stages_of(part.stages)
            together = irp and stages == (Stage.ENCODE,)
            memory = f"mem{0 if together else number}"
            instances.append(Instance(f"{part.stages}-{number}", stages, (number,), memory))
    return Placement(text, tuple(instances), irp=irp)


def count(text: str) -> int:
    """Return how many devices a placement takes."""
    return sum(part.count for part in split_parts(text))
