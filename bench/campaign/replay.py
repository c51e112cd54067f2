"""Tries cases one at a time, and measures each: the streams' longest gap, and the memory of the server's process."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec
import psutil

from bench.campaign.cases import Outcome
from bench.campaign.gaps import Gap, Streams, longest

MORE_MEMORY = 64 << 20  # bytes above those before a case, a minute later
_BACK_SECONDS = 60
_STILL_SECONDS = 1.0  # until a gap that a case made has ended
_MIB = 1 << 20


class Replayed(msgspec.Struct, kw_only=True):
    """What a case did: its own time, the longest gap beside it, and MiB of the process that answers HTTP."""

    case: str
    kind: str
    status: str
    seconds: float
    gap_ms: float
    late_ms: float
    waited_ms: float
    mib_before: float
    mib_after: float
    back_seconds: int  # until the memory was back
    violation: str = ""


async def replay(
    run: Callable[[int], Awaitable[Outcome]],
    indices: Iterable[int],
    streams: Streams,
    pid: int,
    on_end: Callable[[Replayed], None],
) -> list[Replayed]:
    """Run cases one after the other beside the streams; `on_end` is told of each."""
    rows = []
    for index in indices:
        before = _memory(pid)
        outcome = await run(index)
        await asyncio.sleep(_STILL_SECONDS)
        gap = _longest_since(streams, outcome.began)
        waited = await _until_back(pid, before)
        rows.append(_row(outcome, gap, before, _memory(pid), waited))
        on_end(rows[-1])
    return rows


def _row(outcome: Outcome, gap: Gap, before: int, after: int, waited: int) -> Replayed:
    return Replayed(
        case=outcome.name,
        kind=outcome.kind,
        status=outcome.status,
        seconds=round(outcome.ended - outcome.began, 1),
        gap_ms=round(1000 * gap.gap),
        late_ms=round(1000 * gap.late),
        waited_ms=round(1000 * gap.waited),
        mib_before=round(before / _MIB),
        mib_after=round(after / _MIB),
        back_seconds=waited,
        violation=outcome.violation,
    )


def _longest_since(streams: Streams, began: float) -> Gap:
    return next(iter(longest([gap for gap in streams.gaps if gap.at >= began], 1)), Gap(began, 0.0))


async def _until_back(pid: int, before: int) -> int:
    """Wait until the memory is back, a minute at most; return how many seconds that took."""
    for second in range(_BACK_SECONDS):
        if _memory(pid) <= before + MORE_MEMORY:
            return second
        await asyncio.sleep(1)
    return _BACK_SECONDS


def _memory(pid: int) -> int:
    resident: int = psutil.Process(pid).memory_info().rss
    return resident
