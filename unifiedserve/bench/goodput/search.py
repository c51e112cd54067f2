"""Find goodput by search: runs at rate after rate."""

import zlib
from collections.abc import Awaitable, Callable
from statistics import mean

import msgspec

from unifiedserve.bench.goodput.bracket import Bracket

Run = Callable[[float, int], Awaitable[float | None]]


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Record a run at a rate (requests a second): its seed, and the share of its requests that held their targets."""

    rate: float
    seed: int
    attainment: float


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """State what is searched for.

    It is the highest rate with at least `attainment`, known to `precision` (a share of the rate).
    """

    attainment: float = 0.9
    precision: float = 0.05
    first: float = 1.0
    repeats: int = 1


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Report the goodput in requests a second, the next failing rate, and all tries.

    That rate is the lowest known to be too high. `rate` is None if no rate attained the goal, `too_high` if all did;
    `interrupted` if it is not complete.
    """

    goal: Goal
    rate: float | None
    too_high: float | None
    probes: list[Probe]
    interrupted: bool = False


async def search(run: Run, goal: Goal, seed: int) -> Found:
    """Search with `run(rate, seed)`, which returns the attainment, or None to end the search.

    Every run has a seed of its own, so that no cache knows its requests; at a rate it is the same for all servers.
    """
    bracket = Bracket(goal.first, goal.precision)
    probes: list[Probe] = []
    interrupted = False
    while not interrupted and (rate := bracket.next_rate()) is not None:
        shares: list[float] = []
        for repeat in range(goal.repeats):
            its_seed = probe_seed(seed, rate, repeat)
            share = await run(rate, its_seed)
            if share is None:
                interrupted = True
                break
            shares.append(share)
            probes.append(Probe(rate=rate, seed=its_seed, attainment=share))
        else:
            bracket.tell(rate, mean(shares) >= goal.attainment)
    return Found(goal=goal, rate=bracket.low, too_high=bracket.high, probes=probes, interrupted=interrupted)


def probe_seed(seed: int, rate: float, repeat: int) -> int:
    """Return the seed of a run at `rate`: it depends on nothing that a server did."""
    return zlib.crc32(f"{seed} {rate:.6g} {repeat}".encode())
