"""Replace one worker that has died, while the others go on."""

import asyncio
from collections.abc import Collection, Iterable
from functools import partial

from unifiedserve.engine.health import Health
from unifiedserve.engine.requests.losses import (
    called_back,
    ended_with,
    handed_over,
    left_behind,
    past_windows,
    still_to_come,
)
from unifiedserve.engine.requests.table import Lost
from unifiedserve.engine.roles import Roles
from unifiedserve.engine.running import Running
from unifiedserve.engine.survivors import Survivors
from unifiedserve.messages.wire import Forget, Generation, PagesFreed, Reborn, unpack
from unifiedserve.placement import Placement, Stage


class Replacement:
    """Lead from one worker's death to the next worker of its instance.

    The answers that it decoded go on from its page tables. Other attempts lose their parts there, and are lost with
    them. So the survivors drop what they hold of those attempts, one stage after the other: each survivor that hears
    has all before it that the stages before have sent. Then they hear of the next incarnation. Answers that they
    handed to the dead worker and it had not read are handed to the next one; others are lost, too. Then nobody holds a
    page of lost attempts, and those that are still tagged with them are free. Meanwhile the next worker starts.
    """

    def __init__(
        self,
        running: Running,
        roles: Roles,
        health: Health,
        survivors: Survivors,
        name: str,
        doubted: Collection[int] = (),
    ) -> None:
        """Note what is lost with the worker of an instance that has died just now.

        After a fault the attempts are `doubted` that it was at work on: none of them goes on from its page table.
        """
        self._running = running
        self._roles = roles
        self._health = health
        self._survivors = survivors
        self._name = name
        self._memory = running.workers.memory
        rows = self._memory.sequences.of(name).take()
        self._incarnation = self._memory.bear_anew(name)
        held = self._memory.requests()
        ended = set(ended_with(name, running.table, roles.placement))
        self._gone_on = running.lifecycle.go_on(ended.difference(doubted), rows)
        others = roles.placement.without([name]).instances
        handed = {uid for other in others for uid in handed_over(other.name, name, running.table)}
        self._lost: list[Lost] = running.lifecycle.lose(ended - self._gone_on - handed.difference(doubted))
        for uid in still_to_come(name, running.table):
            self._memory.reclaim(uid, self._memory.number(name))
        for uid in past_windows(name, running.table):
            self._memory.reclaim_media(uid)
        self._left = [*left_behind(name, running.table, roles.placement)]
        self._strays = held.difference(uid for uid, _ in running.table.attempts())  # ended, or lost just now

    async def carry_out(self, startup_timeout: float) -> None:
        """Return when the next worker is up, and what was lost can be sent again. Raises ConfigError if none starts."""
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._start(startup_timeout))
                both.create_task(self._clean_up())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self.strand()

    def strand(self) -> None:
        """Have the answers wait of which something was lost. Safe to call twice."""
        lost, self._lost = self._lost, []
        self._running.lifecycle.strand(lost)

    def end(self) -> None:
        """Send what was lost through again, unless all workers are being replaced."""
        if self.overtaken:
            return
        if self._health.healthy:
            self._memory.remove_abandoned()
        self._running.lifecycle.workers_back()

    @property
    def overtaken(self) -> bool:
        """Tell whether all workers have been replaced since, and their memory with them."""
        return self._running.workers.memory is not self._memory

    async def _start(self, startup_timeout: float) -> None:
        await self._running.workers.revive(self._name, self._placement, self._health.learned)
        await self._health.wait_up(self._name, startup_timeout)

    def _placement(self) -> Placement | None:
        superseded = self._memory.layout.incarnation(self._name) != self._incarnation
        return None if self.overtaken or superseded else self._roles.placement

    async def _clean_up(self) -> None:
        others = self._roles.placement.without([self._name])
        names = [instance.name for instance in others.instances]
        send, reborn = self._running.workers.send, partial(Reborn, instance=self._name, incarnation=self._incarnation)
        lost = [lost.uid for lost in self._lost]
        await self._forget(others, lost)  # first: nobody may send the next worker pages that are about to be free
        await self._survivors.tell(names, send, reborn, lambda name, _: self._hand_on(name))
        self._running.lifecycle.call_back(called_back(self._name, self._running.table))
        await self._forget(others, [each.uid for each in self._lost[len(lost) :]])
        if not self.overtaken:
            self._free(names)

    async def _forget(self, others: Placement, uids: list[int]) -> None:
        for stage in Stage if uids else ():
            message = partial(Forget, stage=stage, uids=uids)
            await self._survivors.tell(others.hosts(stage), self._running.workers.send, message)

    def _hand_on(self, giver: str) -> None:
        """Hand to the next worker what an instance handed to the dead one.

        The attempts are lost whose answers the dead worker had read. All that the instance told before is known.
        """
        handed = set(handed_over(giver, self._name, self._running.table)) - self._gone_on
        messages = map(unpack, self._memory.unread(self._name))
        unread = {(each.ticket.uid, each.index): each for each in messages if isinstance(each, Generation)}
        handed_on = self._running.lifecycle.hand_on(handed, unread)
        self._gone_on |= handed_on
        self._lost += self._running.lifecycle.lose(handed - handed_on)
        left = {uid for uid, _ in unread}.difference(uid for uid, _ in self._running.table.attempts())
        self._strays |= left - self._gone_on  # their first tokens have ended them, and nobody else has their pages

    def _free(self, names: Iterable[str]) -> None:
        for uid in self._strays.union(lost.uid for lost in self._lost):
            self._memory.reclaim(uid)
        own = self._roles.placement.memory_of(self._name)
        for uid, decode in self._left:
            self._memory.reclaim_in(own, uid, spared=decode)
        self._memory.status.owes_nothing(self._name)
        for name in names:
            self._running.workers.send(name, PagesFreed())
