"""What becomes of an engine whose workers die."""

import asyncio
import logging
import signal
import time
from collections import deque
from collections.abc import Callable

from unifiedserve.engine.health import Health
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.roles import Roles
from unifiedserve.engine.running import Running
from unifiedserve.worker.assembly import DAMAGED_WEIGHTS

_log = logging.getLogger(__name__)
_MOST_RESTARTS = 5  # within
_RESTART_SECONDS = 120.0


class Recovery:
    """Restarts workers that died, and gives up where that is of no use. Belongs to the engine's event loop."""

    def __init__(
        self,
        health: Health,
        roles: Roles,
        startup_timeout: float,
        fail_all: Callable[[str], None],
        on_restart: Callable[[], None],
    ) -> None:
        """Watch over `health`, and restart all with their `roles`.

        `fail_all` ends all requests, now and later, for a reason; `on_restart` counts.
        """
        self._health = health
        self._roles = roles
        self._startup_timeout = startup_timeout
        self._fail_all = fail_all
        self._on_restart = on_restart
        self._lost_generation = -1
        self._restarts: deque[float] = deque(maxlen=_MOST_RESTARTS)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, running: Running | None, instance: str, code: int, generation: int) -> None:
        """Replace all workers of this generation, one of which ended, unless that is under way already."""
        if self._health.fatal or generation <= self._lost_generation:
            return  # the end has come, or another worker of it died before and all are being replaced
        self._lost_generation = generation
        self._health.worker_lost()
        if running is None or (generation == 0 and not self._health.decided):
            self.give_up(f"worker {instance} ended with code {code} at start; its log is above")
        elif self._restarts_too_often():
            self.give_up(
                f"worker {instance} ended with code {code}, after {_MOST_RESTARTS} restarts in {_RESTART_SECONDS:g} s"
            )
        else:
            _log.warning("worker %s ended with code %d: restarting; no request is lost", instance, code)
            self._on_restart()
            self._health.restarting()
            self._roles.restart()
            killed = code == -signal.SIGKILL  # from outside: it has written nothing that it was not to write
            lost = running.lifecycle.workers_lost(running.workers.memory.pulses.worked_on(instance))
            recovering = self._recover(running, lost, damaged=code == DAMAGED_WEIGHTS, keeps=killed)
            self._keep(asyncio.create_task(recovering))

    def give_up(self, reason: str) -> None:
        """End it all."""
        _log.error("%s", reason)
        self._health.worker_lost()
        self._fail_all(reason)

    def cancel(self) -> None:
        """Stop what is under way."""
        for task in self._tasks:
            task.cancel()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _restarts_too_often(self) -> bool:
        now = time.monotonic()
        often = len(self._restarts) == _MOST_RESTARTS and now - self._restarts[0] < _RESTART_SECONDS
        self._restarts.append(now)
        return often

    async def _recover(self, running: Running, lost: list[ActiveRequest], *, damaged: bool, keeps: bool) -> None:
        """Restart the workers over fresh pools, then send every unfinished answer of what was lost through again.

        Damaged weights are loaded anew. Where the caches are to be kept, answers go on from their full pages.
        """
        try:
            placement, weights_sum = self._roles.placement, self._health.weights_sum
            await running.workers.restart(placement, weights_sum, damaged=damaged, keeps=keeps)
            await self._health.wait_decided(self._startup_timeout)
        except Exception as error:
            _log.exception("the restart failed")
            self.give_up(f"the workers could not be restarted: {error}")
        if self._health.fatal:
            running.lifecycle.release_ending(lost)
        else:
            running.lifecycle.workers_back(lost)
