"""Plan from beginning to end: search, then say what was found."""

from collections.abc import Callable
from time import monotonic

from unifiedserve.errors import ConfigError
from unifiedserve.planning.case import Case
from unifiedserve.planning.choices import choice_of, curves, frontier
from unifiedserve.planning.options import Objective
from unifiedserve.planning.plan import Plan, Point
from unifiedserve.planning.pool import Pool
from unifiedserve.planning.ranking import SHOWN
from unifiedserve.planning.search import Effort, Search, Tried

_MOST_DEVICES = 64


def make_plan(
    case: Case,
    devices: int,
    objective: Objective,
    effort: Effort,
    *,
    cost: float = 0.0,
    processes: int = 1,
    tell: Callable[[Tried], None] = lambda tried: None,
) -> Plan:
    """Return the best placement over so many devices or fewer, and its runners-up.

    Ctrl-C ends the search: the plan, marked, is of what there is then. Raises ConfigError for what cannot be planned.
    """
    check(case, devices, objective)
    start = monotonic()
    search = Search(case, effort, objective, cost, tell)
    interrupted = False
    found: list[list[Point]] = []
    with Pool(case, processes) as pool:
        try:
            search.run(devices, pool)
            if objective == "goodput" and search.ranking.best:
                found = curves(case, pool, search.ranking.best[:SHOWN], start + effort.seconds)
        except KeyboardInterrupt:
            interrupted = True
            pool.stop()
    first = search.ranking.best[:SHOWN]
    nearest = search.nearest
    return Plan(
        workload=case.workload.name,
        requests=len(case.arrivals),
        model=case.profile.model,
        hardware=case.profile.hardware,
        devices=devices,
        objective=objective,
        slo=case.slo,
        choices=[choice_of(case, rated, curve) for rated, curve in zip(first, found or [[]] * len(first), strict=True)],
        front=frontier(search.ranking.front()),
        nearest=choice_of(case, nearest) if nearest else None,
        candidates=search.tried.candidates,
        simulations=search.tried.simulations,
        ruled_out=search.tried.ruled_out,
        seconds=monotonic() - start,
        interrupted=interrupted,
    )


def check(case: Case, devices: int, objective: Objective) -> None:
    """Raise ConfigError for what cannot be planned, whatever is tried."""
    if devices < 1:
        raise ConfigError(f"--devices {devices}: a placement needs one device at least")
    if devices > _MOST_DEVICES:
        raise ConfigError(
            f"--devices {devices}: one engine has {_MOST_DEVICES} at most; plan for fewer, and have several "
            "engines behind a router"
        )
    if case.profile.device.kind == "cpu" and devices > 1:
        raise ConfigError(
            f"--devices {devices}: the profile is of a CPU, all of whose cores are one device: leave it out"
        )
    if objective == "goodput" and case.slo.asks_nothing:
        raise ConfigError("goodput needs targets: give --slo-ttft, --slo-tbt or both")
