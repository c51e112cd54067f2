"""Correct the references of shared pages after a death or a failed step."""

import asyncio
from collections import Counter
from functools import partial

from unifiedserve.engine.health import Health
from unifiedserve.engine.roles import Roles
from unifiedserve.engine.survivors import Survivors
from unifiedserve.engine.workers import Workers
from unifiedserve.memory.shared import PoolKey, SharedMemory
from unifiedserve.messages.wire import Count, Heard, PagesFreed
from unifiedserve.placement import Stage

_PAUSE_SECONDS = 0.25  # before pages are looked at again whose references changed meanwhile

Words = dict[PoolKey, dict[int, int]]  # of shared pages


class Audit:
    """Count the references that live workers hold. A word of the pool alone does not tell whose they are.

    Stages are asked one after the other. A reference that one hands on to the next meanwhile is counted twice, but
    never missed: each worker that is asked has all before it that the stages before had sent when they answered. A page
    whose word has stayed the same throughout has had the same holders, and so many more references as are left of the
    dead.
    """

    def __init__(self, health: Health, roles: Roles, survivors: Survivors) -> None:
        self._health = health
        self._roles = roles
        self._survivors = survivors
        self._deaths = 0

    def begin(self) -> int:
        """Return the number of this death, or failed step: the audit of an earlier one is of no use any more."""
        self._deaths += 1
        return self._deaths

    async def carry_out(self, workers: Workers, death: int) -> None:
        """Return when all shared pages have as many references as holders. Another death ends it, too."""
        memory, seen = workers.memory, _shared(workers.memory)
        while any(seen.values()) and death == self._deaths and self._health.healthy:
            counted = await self._count(workers, death)
            if death != self._deaths:
                return
            seen = _correct(memory, seen, counted)
            for instance in self._roles.placement.instances:
                workers.send(instance.name, PagesFreed())
            if any(seen.values()):
                await asyncio.sleep(_PAUSE_SECONDS)
                now = _shared(memory)
                seen = {
                    key: {page: now[key][page] for page in words if page in now[key]} for key, words in seen.items()
                }

    async def _count(self, workers: Workers, death: int) -> Counter[tuple[PoolKey, int]]:
        counted: Counter[tuple[PoolKey, int]] = Counter()
        placement = self._roles.placement

        def add(instance: str, answer: Heard | None) -> None:
            for pool, pages in answer.shared.items() if answer else ():
                counted.update({((placement.memory_of(instance), pool), page): held for page, held in pages.items()})

        for stage in Stage:
            if death == self._deaths:  # else there may be nobody left to answer
                await self._survivors.tell(placement.hosts(stage), workers.send, partial(Count, stage=stage), add)
        return counted


def _shared(memory: SharedMemory) -> Words:
    """Return the words of all pages that are shared."""
    words = {key: pool.shared() for key, pool in memory.pools.items()}
    return {key: dict(zip(pages.tolist(), own.tolist(), strict=True)) for key, (pages, own) in words.items()}


def _correct(memory: SharedMemory, seen: Words, counted: Counter[tuple[PoolKey, int]]) -> Words:
    """Correct the pages whose words are as they were seen, and return the others."""
    return {
        key: {
            page: word for page, word in words.items() if not memory.pools[key].correct(page, word, counted[key, page])
        }
        for key, words in seen.items()
    }
