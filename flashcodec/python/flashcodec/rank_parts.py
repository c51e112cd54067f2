"""Divide a list of frames among ranks (UnifiedServe, Algorithm 1, lines 3 and 4); pure.

A rank has consecutive GOPs, balanced by the frames that it has to decode for its targets. Models that merge frames into
temporal patches need whole patches of every rank but the last one, so that the bounds between ranks are moved.
"""

from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Adjustment = Literal["increase", "decrease"]


class RankPart(NamedTuple):
    """Hold places [first, last) of a list, and about how many frames are decoded for them."""

    first: int
    last: int
    frames_decoded: int


def divide_among_ranks(
    frames: npt.NDArray[np.integer[Any]],
    gop_starts: npt.NDArray[np.integer[Any]],
    ranks: int,
    temporal_patch_size: int = 1,
    adjust: Adjustment = "increase",
) -> tuple[RankPart, ...]:
    """Return the part of each rank, in the order of the list; all places are some rank's.

    All parts but the last one that is not empty are whole temporal patches. Fewer GOPs than ranks leave some empty.

    Args:
        frames: integers [n], in any order.
        gop_starts: integers [g], the first frame of each GOP, ascending from 0.
        ranks: how many there are.
        temporal_patch_size: how many places of the list a model merges.
        adjust: what a rank does if its GOPs end in mid-patch. "increase": it takes the missing frames from the next
            rank, which lie at the beginning of a GOP. "decrease": it leaves the last ones to the next rank, which
            decodes their GOP once more.

    Raises ValueError if `ranks` or `temporal_patch_size` is not positive.
    """
    if ranks < 1 or temporal_patch_size < 1:
        raise ValueError(f"ranks and temporal_patch_size must be positive, got {ranks} and {temporal_patch_size}")
    if adjust not in ("increase", "decrease"):
        raise ValueError(f'adjust must be "increase" or "decrease", got {adjust!r}')
    gops = np.searchsorted(gop_starts, frames, side="right") - 1
    entries = np.flatnonzero(np.diff(gops, prepend=-1))  # places where another GOP begins
    depths = frames - gop_starts[gops] + 1  # frames decoded up to each
    costs = np.maximum.reduceat(depths, entries) if len(entries) else depths
    bounds = [*entries[_balanced_bounds(costs, ranks)[:-1]], len(frames)] if len(entries) else []
    bounds = [0, *(_aligned(int(bound), len(frames), temporal_patch_size, adjust) for bound in bounds)]
    bounds += [len(frames)] * (ranks + 1 - len(bounds))
    return tuple(
        RankPart(first, last, _frames_decoded(gops[first:last], depths[first:last])) for first, last in pairwise(bounds)
    )


def _aligned(bound: int, count: int, size: int, adjust: Adjustment) -> int:
    """Return the bound between temporal patches next to this one; the end of the list stays where it is."""
    if bound == count:
        return count
    down = bound // size * size
    return down if adjust == "decrease" or down == bound else min(down + size, count)


def _balanced_bounds(costs: npt.NDArray[np.integer[Any]], ranks: int) -> list[int]:
    """Return where at most `ranks` consecutive parts end whose largest sum is least."""
    least, most = int(costs.max()), int(costs.sum())
    while least < most:
        limit = (least + most) // 2
        if len(_filled(costs, limit)) <= ranks:
            most = limit
        else:
            least = limit + 1
    return _filled(costs, least)


def _filled(costs: npt.NDArray[np.integer[Any]], limit: int) -> list[int]:
    """Return where parts end that each take as many costs as fit into the limit.

    No cost exceeds it.
    """
    before, ends = np.concatenate([[0], np.cumsum(costs)]), list[int]()
    while not ends or ends[-1] < len(costs):
        begun = before[ends[-1]] if ends else 0
        ends.append(int(np.searchsorted(before, begun + limit, side="right")) - 1)
    return ends


def _frames_decoded(gops: npt.NDArray[np.integer[Any]], depths: npt.NDArray[np.integer[Any]]) -> int:
    """Return how many frames are decoded for some: of each GOP those up to its last target."""
    return sum(int(depths[gops == gop].max()) for gop in np.unique(gops))
