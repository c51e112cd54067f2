"""Hold a search's findings, as they are shown and written."""

from typing import Any

import msgspec

from unifiedserve.bench.slo import Slo
from unifiedserve.planning.objective import Latencies
from unifiedserve.planning.options import Objective


class Point(msgspec.Struct, frozen=True):
    """Hold a rate (requests a second), the share that held their targets, and the shares that missed.

    The latter are of each target.
    """

    rate: float
    attainment: float
    first_late: float
    tokens_late: float


class Capacity(msgspec.Struct, frozen=True):
    """Name the stages whose devices can do the fewest requests a second. Costs that are not known give None."""

    stages: tuple[str, ...]
    rate: float | None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a placement with a short name, its options of `serve`, and the result. Both give it.

    That is a `value` in requests a second, and what is `seen` of latencies at that rate.
    """

    label: str
    placement: str
    devices: int
    options: dict[str, Any]
    value: float
    too_high: float | None  # the lowest rate that was tried in vain
    seen: Latencies
    capacity: Capacity
    curve: list[Point] = []


class Frontier(msgspec.Struct, frozen=True):
    """Hold the most that so many devices reach, and with which placement."""

    devices: int
    value: float
    label: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the best placement and its runners-up. There are none where nothing meets the targets.

    Then `nearest` would meet them if they were `scale` times as long. `ruled_out` of the candidates were so by bounds,
    or by a simulation that fell behind the others'.
    """

    workload: str
    requests: int
    model: str
    hardware: str
    devices: int
    objective: Objective
    slo: Slo
    choices: list[Choice]
    front: list[Frontier]
    nearest: Choice | None = None
    candidates: int = 0
    simulations: int = 0
    ruled_out: int = 0
    seconds: float = 0.0
    interrupted: bool = False
