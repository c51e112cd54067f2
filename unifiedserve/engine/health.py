"""Tell whether the engine has workers, and why it never will again."""

import asyncio

from unifiedserve.config import EngineConfig
from unifiedserve.engine.learned import Learned
from unifiedserve.engine.resources import check_target
from unifiedserve.errors import ConfigError, ErrorKind, RequestError
from unifiedserve.messages.wire import Ready


class Health:
    """Track the state of the workers as a whole. Belongs to the engine's event loop."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self.healthy = False  # all workers live
        self.fatal: str | None = None  # why the engine serves nothing any more
        self.learned = Learned()  # by workers that have started
        self.target_between_tokens: float | None = None  # seconds; known when the workers are up
        self._memories = {instance.name: instance.memory for instance in config.machine.workers.instances}
        self._instances = frozenset(self._memories)
        self._ready: set[str] = set()
        self._restarts = 0  # that have begun, and not started the new workers yet
        self._changed = asyncio.Event()  # replaced whenever a worker has come up, or the end has come
        self._decided = asyncio.Event()  # the workers are up, or never will be
        self._ended = asyncio.Event()

    @property
    def decided(self) -> bool:
        """Tell whether the workers are up, or never will be."""
        return self._decided.is_set()

    @property
    def has_pools(self) -> bool:
        """Tell whether the workers' pools are there to stay: they do while one worker is replaced."""
        return self.decided and not self.fatal

    def worker_ready(self, message: Ready) -> None:
        """Note that a worker is up. Raises ConfigError if streams cannot hold their target with it."""
        if message.decode_step is not None:
            self._set_target(message.decode_step)
        self.learned.take_in(message, self._memories[message.instance])
        self._ready.add(message.instance)
        self._tell()
        if self._ready == self._instances:
            self.healthy = True
            self._decided.set()

    def is_up(self, instance: str) -> bool:
        """Tell whether the worker of an instance has started, and lives as far as known."""
        return instance in self._ready

    def worker_lost(self, instance: str = "") -> None:
        """Note that a worker died, or that none is wanted any more."""
        self._ready.discard(instance)
        self.healthy = False

    def restarting(self) -> None:
        """Wait for all workers again: the pools are replaced, too."""
        self._restarts += 1
        self._ready.clear()
        self._decided.clear()

    def restarted(self) -> None:
        """Note that new workers start: what is heard from now on is theirs."""
        self._restarts -= 1

    @property
    def hears_old_workers(self) -> bool:
        """Tell whether what is heard now is of workers that are about to be replaced."""
        return self._restarts > 0

    def end(self, reason: str) -> None:
        """Note why the engine serves nothing any more; the first reason stays."""
        self.fatal = self.fatal or reason
        self._decided.set()
        self._ended.set()
        self._tell()

    async def wait_ended(self) -> str:
        """Return why the engine serves nothing any more, once it does not."""
        await self._ended.wait()
        return self.fatal or ""

    def check(self) -> None:
        """Raise RequestError (UNAVAILABLE) if the engine serves nothing any more."""
        if self.fatal:
            raise RequestError(self.fatal, ErrorKind.UNAVAILABLE)

    async def wait(self) -> None:
        """Return when the workers are up. Raises RequestError (UNAVAILABLE) if they never will be."""
        await self._decided.wait()
        self.check()

    async def wait_up(self, instance: str, seconds: float) -> None:
        """Return when the worker of an instance has started.

        Raises ConfigError if that takes longer than `seconds`, or if the engine serves nothing any more.
        """
        try:
            async with asyncio.timeout(seconds):
                while not (self.fatal or self.is_up(instance)):
                    await self._changed.wait()
        except TimeoutError as error:
            raise ConfigError(f"worker {instance} was not ready after {seconds:g} s") from error
        if self.fatal:
            raise ConfigError(self.fatal)

    async def wait_decided(self, seconds: float) -> None:
        """Return when the workers are up, or never will be. Raises ConfigError if that takes longer than `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._decided.wait()
        except TimeoutError as error:
            waiting = ", ".join(sorted(self._instances - self._ready))
            raise ConfigError(f"workers {waiting} were not ready after {seconds:g} s") from error

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _set_target(self, decode_step: float) -> None:
        if self.target_between_tokens is None:  # the engine starts: later it makes do with what there is
            check_target(self._config, decode_step)
        self.target_between_tokens = self._config.scheduling.seconds_between_tokens(decode_step)
