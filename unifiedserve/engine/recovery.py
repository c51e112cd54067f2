"""Recover an engine whose workers die."""

import asyncio
import logging
import signal
import time
from collections import deque
from collections.abc import Callable

from ipc_buffers import ArenaError
from unifiedserve.engine.audit import Audit
from unifiedserve.engine.health import Health
from unifiedserve.engine.replacement import Replacement
from unifiedserve.engine.roles import Roles
from unifiedserve.engine.running import Running
from unifiedserve.engine.survivors import Survivors
from unifiedserve.engine.workers import Workers
from unifiedserve.messages.wire import Heard
from unifiedserve.worker.damage import DAMAGED_WEIGHTS

_log = logging.getLogger(__name__)
_MOST_RESTARTS = 5  # within
_RESTART_SECONDS = 120.0
_TOGETHER_SECONDS = 0.5  # between deaths that have one cause: all workers end with what has started them


class Recovery:
    """Restart workers that died, and give up where that is of no use. Belongs to the engine's event loop."""

    def __init__(
        self,
        health: Health,
        roles: Roles,
        startup_timeout: float,
        fail_all: Callable[[str], None],
        on_restart: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        """Watch over `health`, and restart all with their `roles`.

        `fail_all` ends all requests, now and later, for a reason; `on_restart` counts, `on_change` hears that a worker
        has been replaced.
        """
        self._health = health
        self._roles = roles
        self._startup_timeout = startup_timeout
        self._fail_all = fail_all
        self._on_restart = on_restart
        self._on_change = on_change
        self._survivors = Survivors()
        self._audit = Audit(health, roles, self._survivors)
        self._lost_generation = -1
        self._restarts: deque[float] = deque(maxlen=_MOST_RESTARTS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._replacing: dict[Replacement, asyncio.Task[None]] = {}
        self._weights: asyncio.Task[list[int]] | None = None

    def begin(self, running: Running | None, instance: str, code: int, generation: int) -> None:
        """Replace a worker of this generation that has ended, or all if needed."""
        if self._health.fatal or generation <= self._lost_generation:
            return  # the end has come, or all workers of it are being replaced
        self._health.worker_lost(instance)
        if running is None or (generation == 0 and not self._health.decided):
            self.give_up(f"worker {instance} ended with code {code} at start; its log is above")
            return
        worked_on = running.workers.memory.pulses.worked_on(instance)
        known = running.lifecycle.blame(worked_on, media=self._roles.handles_media(instance))
        if not known and self._restarts_too_often():
            self.give_up(
                f"worker {instance} ended with code {code}, after {_MOST_RESTARTS} restarts in {_RESTART_SECONDS:g} s"
            )
            return
        _log.warning("worker %s ended with code %d: restarting; no request is lost", instance, code)
        self._on_restart()
        killed = code == -signal.SIGKILL  # from outside: it has written nothing that it was not to write
        if running.workers.apart and code != DAMAGED_WEIGHTS:
            self._replace(running, instance, set() if killed else worked_on)
            if not killed:
                self._keep(asyncio.create_task(self._check_weights(running, generation)))
        else:
            self._restart(running, generation, damaged=code == DAMAGED_WEIGHTS, keeps=killed)

    def give_up(self, reason: str) -> None:
        """End it all."""
        _log.error("%s", reason)
        self._health.worker_lost()
        self._fail_all(reason)

    def heard(self, message: Heard) -> None:
        """Take in what a worker answers that lives on."""
        self._survivors.heard(message)

    def step_failed(self, running: Running) -> None:
        """Correct the references of shared pages: a step that failed may have left some, of attempts that are over.

        While a worker is replaced, that is done afterwards anyway.
        """
        if self._health.healthy:
            self._keep(asyncio.create_task(self._audit.carry_out(running.workers, self._audit.begin())))

    def cancel(self) -> None:
        """Stop what is under way."""
        for task in self._tasks:
            task.cancel()
        if self._weights is not None:
            self._weights.cancel()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def begin_watch(self, workers: Workers) -> None:
        """Note what the weights in host memory add up to, to compare after a fault."""
        self._weights = asyncio.create_task(workers.sum_weights())
        self._keep(asyncio.create_task(self._keep_weights(workers, self._weights)))

    async def _keep_weights(self, workers: Workers, sums: "asyncio.Task[list[int]]") -> None:
        """Keep the weights for the next start, as they are now."""
        await workers.keep_weights(await asyncio.shield(sums))

    async def _check_weights(self, running: Running, generation: int) -> None:
        """Load the weights again, and replace all workers, if a fault has damaged them."""
        if self._weights is None or await running.workers.sum_weights() == await self._weights:
            return
        _log.error("the weights in memory are not what they were: they are loaded anew")
        if not self._health.fatal and generation > self._lost_generation:
            self._restart(running, generation, damaged=True, keeps=False)

    def _replace(self, running: Running, instance: str, doubted: set[int]) -> None:
        """Replace one worker; all others go on."""
        self._roles.leave(instance)
        self._survivors.died(instance)
        death = self._audit.begin()
        try:
            replacement = Replacement(running, self._roles, self._health, self._survivors, instance, doubted)
        except ArenaError as error:
            self.give_up(f"worker {instance} could not be replaced: {error}")
        else:
            self._replacing[replacement] = task = asyncio.create_task(self._carry_out(running, replacement, death))
            task.add_done_callback(lambda _: self._replacing.pop(replacement))
            self._keep(task)

    def _restart(self, running: Running, generation: int, *, damaged: bool, keeps: bool) -> None:
        """Replace all workers."""
        self._lost_generation = generation
        self._audit.begin()
        self._health.restarting()
        self._roles.restart()
        self._survivors.all_died()
        for replacement, task in self._replacing.items():  # none is left to tell of the worker, or to wait for
            task.cancel()
            replacement.strand()
        running.lifecycle.lose_all()
        self._keep(asyncio.create_task(self._recover(running, damaged=damaged, keeps=keeps)))

    async def _carry_out(self, running: Running, replacement: Replacement, death: int) -> None:
        try:
            await replacement.carry_out(self._startup_timeout)
        except Exception as error:
            _log.exception("the restart failed")
            self.give_up(f"the workers could not be restarted: {error}")
        else:
            replacement.end()
            self._on_change()  # waiters may have seen it up before its process was known
            await self._audit.carry_out(running.workers, death)

    def _restarts_too_often(self) -> bool:
        """Count a death, and tell whether there were too many; those that come together count as one."""
        now = time.monotonic()
        if self._restarts and now - self._restarts[-1] < _TOGETHER_SECONDS:
            return False
        often = len(self._restarts) == _MOST_RESTARTS and now - self._restarts[0] < _RESTART_SECONDS
        self._restarts.append(now)
        return often

    async def _recover(self, running: Running, *, damaged: bool, keeps: bool) -> None:
        """Restart the workers over fresh pools, then send every unfinished answer through again.

        Damaged weights are loaded again. Where the caches are to be kept, answers go on from their full pages.
        """
        try:
            placement, learned = self._roles.placement, self._health.learned
            await running.workers.restart(placement, learned, damaged=damaged, keeps=keeps)
            self._health.restarted()
            await self._health.wait_decided(self._startup_timeout)
        except Exception as error:
            _log.exception("the restart failed")
            self.give_up(f"the workers could not be restarted: {error}")
        if not self._health.fatal:
            running.lifecycle.workers_back()
