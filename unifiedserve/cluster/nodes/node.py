"""Keep one server running in an actor: an engine, or a router."""

import asyncio
import contextlib
import time

import httpx
import msgspec

from unifiedserve import __version__
from unifiedserve.cluster.nodes.process import ServerProcess
from unifiedserve.cluster.nodes.reports import NodeReport, NodeSpec, Phase
from unifiedserve.errors import NO_JSON

_BAD_SETUP = 2  # the exit code that says that a new start would not help
_NOT_STARTED = 1  # in place of one
_LOOK_SECONDS = 1.0
_SILENCE_SECONDS = 15.0  # without an answer to /health the server hangs
_STEADY_SECONDS = 60.0  # after so long its earlier ends are forgiven
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds between an end and the next start
_UNTIL_ROUTERS_KNOW = 2.0  # seconds in which all routers hear that a node drains


class Node:
    """Keep a server running until it is drained: restart one that ends or hangs.

    Made within an event loop, which Ray's asynchronous actors have.
    """

    def __init__(self, spec: NodeSpec, address: str) -> None:
        """Start the server of `spec` on the machine with this address."""
        self._spec = spec
        self._machine = address
        self._phase = Phase.STARTING
        self._url = ""
        self._restarts = 0
        self._awaited = frozenset[str]()
        self._reason = ""
        self._told = b""
        self._over = asyncio.Event()
        self._process: ServerProcess | None = None
        self._keeping = asyncio.create_task(self._keep())

    async def report(self) -> NodeReport:
        """Tell how the node is."""
        return NodeReport(
            name=self._spec.name,
            pool=self._spec.pool,
            revision=self._spec.revision,
            phase=self._phase,
            url=self._url,
            machine=self._machine,
            pid=self._process.pid if self._process else 0,
            restarts=self._restarts,
            awaited=self._awaited,
            reason=self._reason,
        )

    async def tell(self, line: bytes) -> None:
        """Write a line to the server's standard input, and to that of each later one."""
        if line == self._told:
            return
        self._told = line
        if self._process:
            await self._process.tell(line)

    async def drain(self) -> None:
        """Begin to stop: routers hear of it first, then the server ends what it has begun."""
        if self._phase in (Phase.DRAINING, Phase.STOPPED):
            return
        if self._phase is Phase.FAILED:
            self._phase = Phase.STOPPED
            return
        pause = _UNTIL_ROUTERS_KNOW if self._phase is Phase.SERVING else 0.0
        self._phase = Phase.DRAINING
        asyncio.get_running_loop().call_later(pause, self._over.set)

    async def _keep(self) -> None:
        if self._spec.version != __version__:
            self._fail(f"{self._machine} has unifiedserve {__version__}, the cluster {self._spec.version}")
            return
        pause = _SHORTEST_PAUSE
        while True:
            began = time.monotonic()
            code = await self._run()
            if await self._is_over_within(0 if code == _BAD_SETUP else pause):
                self._phase = Phase.STOPPED
                return
            if code == _BAD_SETUP:
                self._fail(self._reason)
                return
            self._restarts += 1
            steady = time.monotonic() - began > _STEADY_SECONDS
            pause = _SHORTEST_PAUSE if steady else min(2 * pause, _LONGEST_PAUSE)

    async def _is_over_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
        return self._over.is_set()

    def _fail(self, reason: str) -> None:
        self._reason = reason
        self._phase = Phase.FAILED

    async def _run(self) -> int:
        """Run one server from its start to its end; return its exit code."""
        try:
            process = self._process = await ServerProcess.start(
                (*self._spec.command, f"--host={self._spec.host or self._machine}")
            )
        except OSError as error:  # no memory or no more processes now: a later start may find some
            self._reason = f"its server cannot be started: {error.strerror or error}"
            return _NOT_STARTED
        if self._told:
            await process.tell(self._told)
        beside = [asyncio.create_task(self._watch(process)), asyncio.create_task(self._stop_when_over(process))]
        code = await process.wait()
        for task in beside:
            task.cancel()
        self._process, self._url = None, ""
        self._reason = process.last_words or f"its server ended with code {code}"
        if self._phase is Phase.SERVING:
            self._phase = Phase.STARTING
        return code

    async def _watch(self, process: ServerProcess) -> None:
        """Take its URL when it serves, and kill it when it answers no more."""
        if url := await process.url():
            self._url = url
            if self._phase is Phase.STARTING:
                self._phase = Phase.SERVING
            await self._silence(url)
            process.kill()

    async def _silence(self, url: str) -> None:
        """Return when a server has answered nothing for a while; a router tells of pools that are to wake."""
        heard = time.monotonic()
        async with httpx.AsyncClient(base_url=url, timeout=_LOOK_SECONDS, trust_env=False) as client:
            while time.monotonic() - heard < _SILENCE_SECONDS:
                with contextlib.suppress(httpx.HTTPError):
                    self._awaited = awaited_of((await client.get("/health")).content)
                    heard = time.monotonic()
                await asyncio.sleep(_LOOK_SECONDS)

    async def _stop_when_over(self, process: ServerProcess) -> None:
        await self._over.wait()
        await process.stop(self._spec.drain_timeout)


class _Health(msgspec.Struct):
    awaited: frozenset[str] = frozenset()


def awaited_of(health: bytes) -> frozenset[str]:
    """Return the pools that are to wake, as a router tells at /health; none of others."""
    try:
        return msgspec.json.decode(health, type=_Health).awaited
    except NO_JSON:
        return frozenset()
