"""Token streams that run all the while, in a process of their own: what clients see must not depend on our load.

`python bench/campaign/streams.py HOST:PORT MODEL PID...` prints a line of JSON for each gap between tokens that
matters: when it ended on the monotonic clock, how long it was, how late the machine woke a sleeper meanwhile, and how
long the main threads of these processes had work, but no core. It ends with its standard input.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

STREAMS = 4
TOKENS = 8000  # an answer
WORTH_IT = 0.05  # seconds of a gap
_NAP = 0.005  # seconds of the sleeper
_LOOK = 0.02  # seconds between looks at how long threads wait
_RETRY = 1.0  # seconds after a refusal


class Machine:
    """What a gap owes to the machine: how late it wakes a sleeper, and how long it lets threads wait for a core."""

    def __init__(self, pids: Sequence[str]) -> None:
        self._files = [Path(f"/proc/{pid}/schedstat") for pid in pids]
        self._late: list[tuple[float, float]] = []
        self._waited: deque[tuple[float, float]] = deque([(0.0, 0.0)], 2000)

    async def watch(self) -> None:
        """Sleep and wake, for ever."""
        while True:
            due = time.monotonic() + _NAP
            await asyncio.sleep(_NAP)
            now = time.monotonic()
            if now - due > _NAP:
                self._late = [*self._late[-500:], (now, now - due)]
            if now - self._waited[-1][0] > _LOOK:
                self._waited.append((now, self._waits()))

    def late(self, begin: float) -> float:
        """Return the seconds by which it was late since then, all together."""
        return sum(late for at, late in self._late if at > begin)

    def waited(self, begin: float) -> float:
        """Return the seconds for which threads waited for a core since then."""
        before = max((look for look in self._waited if look[0] <= begin), default=self._waited[0])
        return max(0.0, self._waits() - before[1])  # what one that has ended waited for is gone

    def _waits(self) -> float:
        with contextlib.suppress(OSError):
            return sum(int(file.read_text().split()[1]) for file in self._files) / 1e9
        return 0.0


async def stream(host: str, port: int, model: str, number: int, machine: Machine) -> None:
    """Ask for one long answer after the other, and print its gaps."""
    while True:
        try:
            await _answer(host, port, model, number, machine)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            _print(error=f"{type(error).__name__} {error}", at=time.monotonic())
            await asyncio.sleep(_RETRY)


async def _answer(host: str, port: int, model: str, number: int, machine: Machine) -> None:
    body = {"model": model, "prompt": f"{number} and on", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        first = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in first.partition(b"\r\n")[0]:
            raise ValueError(f"a stream got {first[:40]!r}")
        await _gaps(reader, machine)
    finally:
        writer.close()


async def _gaps(reader: asyncio.StreamReader, machine: Machine) -> None:
    """Print the gaps of an answer; raises ValueError for one that ends early."""
    last, tail, tokens = 0.0, b"", 0
    while piece := await reader.read(1 << 16):
        now = time.monotonic()
        tokens += piece.count(b"data: {")
        if last and now - last > WORTH_IT:
            _print(at=now, gap=now - last, late=machine.late(last), waited=machine.waited(last))
        last, tail = now, (tail + piece)[-200:]
    if b"[DONE]" not in tail:
        raise ValueError(f"a stream ended early: {tail[-100:]!r}")
    _print(tokens=tokens)


def _print(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def main(address: str, model: str, *pids: str) -> None:
    """Run the streams until standard input ends."""
    host, _, port = address.rpartition(":")
    machine = Machine(pids)
    loop = asyncio.get_running_loop()
    works = [machine.watch(), *(stream(host, int(port), model, number, machine) for number in range(STREAMS))]
    tasks = [loop.create_task(work) for work in works]
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
