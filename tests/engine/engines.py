"""The engines that are alive between tests: few, each for all tests in a row that name its options."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import daemon
import engine_starts
from daemon import Daemon
from engine_wishes import Options
from order import KEPT_ALIVE

from unifiedserve.config import EngineConfig

DEFAULTS: Options = {"dtype": "float32", "kv_cache_mib": 64, "patch_buffer_mib": 64, "torch_threads": 1}


@dataclass
class Running:
    """A daemon, what stops it, and the workers that it began with."""

    daemon: Daemon
    stack: ExitStack
    pids: dict[str, int]

    @property
    def as_it_began(self) -> bool:
        """Whether it has lost no worker: after a few losses within two minutes an engine gives up."""
        return self.daemon.engine.observation.worker_pids() == self.pids


class Engines:
    """The daemons that are alive, at most `KEPT_ALIVE`: the one that was asked for longest ago is stopped first.

    `resolve` makes a config of the options that a test names.
    """

    def __init__(self, resolve: Callable[[Options], EngineConfig]) -> None:
        self._resolve = resolve
        self._alive: dict[EngineConfig, Running] = {}

    def serve(self, *, fresh: bool = False, **options: object) -> Daemon:
        """Return a daemon with these options, started if none is alive, or if one is wanted that served nobody yet."""
        config = self._resolve({**DEFAULTS, **options})
        running = self._alive.pop(config, None)
        if running and (fresh or not running.as_it_began):
            running.stack.close()
            running = None
        self._alive[config] = running or self._start(config, options)
        return self._alive[config].daemon

    def close(self) -> None:
        """Stop them all."""
        while self._alive:
            self._stop_oldest()

    def _start(self, config: EngineConfig, options: Options) -> Running:
        while len(self._alive) >= KEPT_ALIVE:
            self._stop_oldest()
        engine_starts.count(options)
        stack = ExitStack()
        started = stack.enter_context(daemon.running(config))
        return Running(started, stack, started.engine.observation.worker_pids())

    def _stop_oldest(self) -> None:
        self._alive.pop(next(iter(self._alive))).stack.close()
