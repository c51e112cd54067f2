"""All the memory that the processes of one engine share: made by the supervisor, attached by workers."""

from collections.abc import Iterable, Mapping

import msgspec

from ipc_buffers import Arena, Memory, MessageQueue, PagePool
from unifiedserve.memory.integrity import check_pool
from unifiedserve.memory.pulses import Pulses
from unifiedserve.memory.status import Status

ENGINE_INBOX = "engine"
_INBOX_BYTES = 8 << 20


class PoolSize(msgspec.Struct, frozen=True):
    pages: int
    page_bytes: int

    @property
    def bytes(self) -> int:
        return self.pages * self.page_bytes


class MemoryLayout(msgspec.Struct, frozen=True):
    """Names and sizes of the shared pools and queues of the engine `engine_id`; `place` is where pages are."""

    engine_id: str
    weights: str  # name of their memory
    kv: PoolSize
    patch: PoolSize
    visual: PoolSize
    instances: tuple[str, ...]
    state_pages: int = 0  # pages of the KV cache for each sequence's recurrent state
    place: str = "host"
    pools_id: str = ""  # of the pools, which may be older than the queues; empty: as old

    def arena(self, name: str) -> str:
        """Return the name of an arena of this engine."""
        return f"{self.engine_id}-{name}"

    def pool(self, name: str) -> str:
        """Return the name of a pool's arena."""
        return f"{self.pools_id or self.engine_id}-{name}"

    @property
    def pools(self) -> dict[str, PoolSize]:
        """The pools' sizes, by name."""
        return {"kv": self.kv, "patch": self.patch, "visual": self.visual}

    @property
    def queue_bytes(self) -> int:
        """The bytes of all queues, which are in host memory."""
        return (1 + len(self.instances)) * _INBOX_BYTES

    def buffers(self) -> dict[str, int]:
        """Return the bytes of the buffers for media, by purpose."""
        return {"patch buffer": self.patch.bytes, "visual buffer": self.visual.bytes}

    def segments(self) -> dict[str, int]:
        """Return the bytes of shared memory, the weights' aside, by purpose."""
        return {"KV cache": self.kv.bytes, **self.buffers(), "queues": self.queue_bytes}


def create_pages(layout: MemoryLayout, prefix: str) -> dict[str, Memory]:
    """Take the memory of all pools' pages; raises ipc_buffers.ArenaError, and takes none, if there is too little."""
    pages: dict[str, Memory] = {}
    try:
        for name, size in layout.pools.items():
            pages[name] = Memory.create(f"{prefix}-{name}-pages", size.bytes, layout.place)
    except BaseException:
        free(pages.values())
        raise
    return pages


def free(memories: Iterable[Memory]) -> None:
    """Give up memories and remove their names."""
    for memory in memories:
        memory.close()
        memory.unlink()


class SharedMemory:
    """The page pools, the stages' status, the workers' pulses, and an inbox for every process."""

    def __init__(
        self,
        layout: MemoryLayout,
        status: Arena,
        pulses: Arena,
        pools: dict[str, PagePool],
        inboxes: dict[str, MessageQueue],
    ) -> None:
        self.layout = layout
        self.status = Status(status, layout.instances)
        self.pulses = Pulses(pulses, layout.instances)
        self.pools = pools
        self.inboxes = inboxes

    @classmethod
    def create(
        cls, layout: MemoryLayout, pages: Mapping[str, Memory], pools: Mapping[str, PagePool] | None = None
    ) -> "SharedMemory":
        """Create all segments over the pools' pages, which stay when these go; `pools` that there are stay, too.

        Raises ipc_buffers.ArenaError with the sizes, and leaves nothing, if they do not fit.
        """
        status = Status.create(layout.arena("status"), layout.instances)
        memory = cls(layout, status, Pulses.create(layout.arena("pulses"), layout.instances), {}, {})
        try:
            for name, size in layout.pools.items():
                kept = pools[name] if pools else None
                memory.pools[name] = kept or PagePool.over(layout.pool(name), pages[name], size.page_bytes)
            for name in (ENGINE_INBOX, *layout.instances):
                memory.inboxes[name] = MessageQueue.create(layout.arena(f"inbox-{name}"), _INBOX_BYTES)
        except BaseException:
            memory.unlink()
            raise
        return memory

    @classmethod
    def attach(cls, layout: MemoryLayout) -> "SharedMemory":
        return cls(
            layout,
            Arena.attach(layout.arena("status")),
            Arena.attach(layout.arena("pulses")),
            {name: PagePool.attach(layout.pool(name)) for name in layout.pools},
            {name: MessageQueue.attach(layout.arena(f"inbox-{name}")) for name in (ENGINE_INBOX, *layout.instances)},
        )

    def reclaim(self, uid: int) -> int:
        """Free every page that is still tagged with a request, and return how many there were."""
        return sum(pool.reclaim(request=uid) for pool in self.pools.values())

    def leave(self, instance: str) -> int:
        """Forget a worker that has ended without requests; free what pages it still holds, and return how many."""
        self.status.leave(instance)
        number = 1 + self.layout.instances.index(instance)
        return sum(pool.reclaim(instance=number) for pool in self.pools.values())

    def check_integrity(self) -> None:
        """Raise PoolError if any pool is not as it must be while no request is in flight."""
        for name, pool in self.pools.items():
            check_pool(name, pool)

    def hand_over_pools(self) -> dict[str, PagePool]:
        """Return the pools, with all pages free, when all workers have ended; `unlink` leaves them from now on."""
        pools, self.pools = self.pools, {}
        for pool in pools.values():
            for number in range(len(self.layout.instances) + 1):  # 0: of pages that several requests share
                pool.reclaim(instance=number)
        return pools

    def unlink(self) -> None:
        parts: list[Arena | PagePool | MessageQueue] = [
            self.status.arena,
            self.pulses.arena,
            *self.pools.values(),
            *self.inboxes.values(),
        ]
        for part in parts:
            part.close()
            part.unlink()
