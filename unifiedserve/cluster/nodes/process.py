"""Run a server as a child process: a daemon or a router, its URL when it serves, and its last words."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator

from unifiedserve.cli.daemon import READY, STEP
from unifiedserve.cluster.nodes.child import child_command

_KEPT_LINES = 20
_TO_STOP = 15.0  # seconds after SIGTERM and --drain-timeout


class ServerProcess:
    """Run one `unifiedserve serve` or `unifiedserve router`, from its start to its end.

    It ends with this process, too. Its lines on stderr are passed on.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors: deque[str] = deque(maxlen=_KEPT_LINES)
        self._reading = asyncio.create_task(self._read_errors())

    @classmethod
    async def start(cls, arguments: tuple[str, ...]) -> "ServerProcess":
        """Start `unifiedserve` with these arguments, in a session of its own."""
        # Ray sets the variable by the actor's CPUs; how many threads there are is --torch-threads's to say.
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *child_command(arguments),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=environment,
                start_new_session=True,
            )
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def last_words(self) -> str:
        """Return the last line on stderr that is not a step of the start."""
        return self._errors[-1].removeprefix("unifiedserve: ") if self._errors else ""

    async def url(self) -> str | None:
        """Return the URL once it serves; None if it ends before."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if match := READY.match(line.decode().rstrip("\n")):
                return match[1]
        return None

    async def tell(self, line: bytes) -> None:
        """Write a line to its standard input, if it still reads that."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(line)
            await self._process.stdin.drain()

    async def wait(self) -> int:
        """Return its exit code when it has ended and all that it said is read."""
        code = await self._process.wait()
        await asyncio.shield(self._reading)  # one of those that wait may be cancelled
        return code

    async def stop(self, seconds: float) -> int:
        """Have it drain for up to so many seconds, and return its exit code; kill it if it does not end."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(seconds + _TO_STOP):
                return await self.wait()
        except TimeoutError:
            self.kill()
            return await self.wait()

    def kill(self) -> None:
        """End it at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        async for line in _lines(self._process.stderr):
            text = line.decode(errors="replace").rstrip("\n")
            print(text, file=sys.stderr, flush=True)
            if text and not STEP.match(text):
                self._errors.append(text)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, which need not fit into its buffer: of a longer one comes a note in its place."""
    while True:
        try:
            if not (line := await stream.readline()):
                return
        except ValueError:
            line = b"(a part of a line that is too long)"
        yield line
