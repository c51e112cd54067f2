"""Carry changes of roles out, one task each."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from unifiedserve.engine.health import Health
from unifiedserve.engine.roles import Roles
from unifiedserve.engine.running import Running
from unifiedserve.errors import ErrorKind, RequestError
from unifiedserve.messages.wire import HandOver, Ready
from unifiedserve.observe.tracing import RoleStep, Timeline
from unifiedserve.placement import Placement, RoleChange, Stage, letters_of

_log = logging.getLogger(__name__)

WaitFor = Callable[[Callable[[], bool]], Awaitable[None]]


class RoleChanges:
    """Drain a worker and have its successor host other stages, while the others serve.

    Others of its memory decode what it was to decode, and it waits for no stream that it only prefilled or encoded for.

    A worker that dies meanwhile is replaced, and told again which one decodes in its place. Where all have to be
    restarted, that is with the stages that were wanted last, as `Roles.restart` notes: then there is nothing left to do
    here.
    """

    def __init__(
        self, roles: Roles, health: Health, timeline: Timeline, wait_for: WaitFor, on_change: Callable[[], None]
    ) -> None:
        """Take `wait_for`, which returns when a condition holds.

        It looks whenever something changes, as `on_change` tells.
        """
        self._roles = roles
        self._health = health
        self._timeline = timeline
        self._wait_for = wait_for
        self._on_change = on_change
        self._ready: set[str] = set()  # new workers that are up
        self._draining: dict[str, Callable[[], None]] = {}  # how each is told to hand over what it decodes
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, running: Running, instance: str, stages: str) -> None:
        """Begin to give an instance the stages with these letters. Raises RequestError if that cannot be."""
        self._health.check()
        if not self._health.healthy:
            raise RequestError("a worker ended and is being replaced", ErrorKind.UNAVAILABLE, retry_after=1)
        memories, keeps_visual = running.workers.memory.layout.memories, running.processor.keeps_visual_rows
        change = self._roles.begin(instance, stages, memories, keeps_visual=keeps_visual)
        if change is None:
            return
        task = asyncio.create_task(self._carry_out(running, change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def worker_ready(self, message: Ready) -> None:
        """Note that a worker is up."""
        self._ready.add(message.instance)
        if hand_over := self._draining.get(message.instance):
            hand_over()  # its predecessor was told, and died

    def cancel(self) -> None:
        """Stop what is under way."""
        for task in self._tasks:
            task.cancel()

    async def _carry_out(self, running: Running, change: RoleChange) -> None:
        name = change.after.name
        self._draining[name] = hand_over = partial(self._hand_over, running, change)
        hand_over()
        await self._wait_for(lambda: not (self._roles.goes_on(change) and running.table.serves(name)))
        del self._draining[name]
        if self._roles.goes_on(change):
            running.table.without(name)
        drained = time.monotonic()
        await running.workers.replace(name, lambda: self._leave(change), self._health.learned)
        await self._wait_for(lambda: not self._roles.goes_on(change) or name in self._ready)
        if self._roles.goes_on(change):
            self._timeline.role(RoleStep(change.before, "drain", change.began, drained))
            self._timeline.role(RoleStep(change.after, "start", drained, time.monotonic()))
            self._roles.end(change)
            self._on_change()

    def _hand_over(self, running: Running, change: RoleChange) -> None:
        """Have others decode what an instance decodes, or was to decode, if any can."""
        if heirs := self._roles.heirs(change):
            for host in {change.after.name, *self._roles.placement.hosts(Stage.PREFILL)}:
                running.workers.send(host, HandOver(change.after.name, heirs))

    def _leave(self, change: RoleChange) -> Placement | None:
        """Return the placement with the change, in which the new worker starts now; None if it is not to."""
        if self._health.fatal or not self._roles.goes_on(change):
            return None
        self._ready.discard(change.after.name)
        self._roles.drained(change)
        self._on_change()
        before, after = letters_of(change.before.stages), letters_of(change.after.stages)
        _log.info("worker %s changes from %s to %s", change.after.name, before, after)
        return self._roles.placement
