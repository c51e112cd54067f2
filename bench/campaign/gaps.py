"""The gaps of the streams, from the process that has them, and which cases ran meanwhile."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

import msgspec

from bench.campaign.cases import Outcome

LIMIT = 0.25  # seconds, beyond what a quiet server's streams have, and what the machine itself adds


class Gap(msgspec.Struct):
    """A gap between two tokens of a stream, when it ended, and what the machine added (see streams.py)."""

    at: float
    gap: float
    late: float = 0.0
    waited: float = 0.0


class _Line(msgspec.Struct):
    at: float = 0.0
    gap: float = 0.0
    late: float = 0.0
    waited: float = 0.0
    tokens: int = 0
    error: str = ""


class Streams:
    """What the streams have told so far."""

    def __init__(self) -> None:
        self.gaps: list[Gap] = []
        self.errors: list[str] = []
        self.answers = 0
        self.quiet = 0.0  # the longest gap of a server with nothing else to do

    async def follow(self, lines: asyncio.StreamReader) -> None:
        """Read what they tell, until they end."""
        async for text in lines:
            line = msgspec.json.decode(text, type=_Line)
            if line.error:
                self.errors.append(line.error)
            elif line.gap:
                self.gaps.append(Gap(line.at, line.gap, line.late, line.waited))
            else:
                self.answers += 1

    async def settle(self, seconds: float) -> None:
        """Take the gaps of a quiet server as the measure for those that come."""
        await asyncio.sleep(3)
        self.gaps.clear()
        await asyncio.sleep(seconds)
        self.quiet = max((gap.gap for gap in self.gaps), default=0.0)
        self.gaps.clear()

    def too_long(self, since: float = 0.0) -> list[Gap]:
        """Return the gaps that are over the limit."""
        return [gap for gap in self.gaps if gap.at >= since and gap.gap > LIMIT + self.quiet + gap.late]


def longest(gaps: Sequence[Gap], most: int) -> list[Gap]:
    """Return the longest gaps, one of those that several streams had at once."""
    found: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: gap.late - gap.gap):
        if all(abs(gap.at - other.at) > max(gap.gap, other.gap) for other in found):
            found.append(gap)
            if len(found) == most:
                break
    return found


def meanwhile(gap: Gap, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the cases that ran during a gap."""
    return [each for each in outcomes if each.began < gap.at and each.ended > gap.at - gap.gap]


@contextlib.asynccontextmanager
async def running(host: str, port: int, model: str, pids: Collection[int]) -> AsyncIterator[Streams]:
    """Have streams of a server with these processes; they end with the context."""
    program = str(Path(__file__).with_name("streams.py"))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        program,
        f"{host}:{port}",
        model,
        *map(str, pids),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    streams = Streams()
    follower = asyncio.create_task(streams.follow(process.stdout))
    try:
        yield streams
    finally:
        process.stdin.close()
        await process.wait()
        await follower
