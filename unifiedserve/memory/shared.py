"""Share memory between the processes of one engine: made by the supervisor, attached by workers."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from ipc_buffers import Arena, Memory, MessageQueue, PagePool
from unifiedserve.memory.integrity import check_pool
from unifiedserve.memory.numa_policy import near_node
from unifiedserve.memory.pulses import Pulses
from unifiedserve.memory.sequence_tables import SequenceTables
from unifiedserve.memory.status import Status
from unifiedserve.placement import ENGINE, Network, Stage

ENGINE_INBOX = ENGINE
_INBOX_BYTES = 8 << 20
_MOST_TABLE_PAGES = 2048  # of a sequence; longer ones are prefilled again after a death
_MOST_MESSAGES = 1024  # taken at once from an inbox that nobody reads any more

PoolKey = tuple[str, str]  # a memory, and which of its pools


class PoolSize(msgspec.Struct, frozen=True):
    pages: int
    page_bytes: int

    @property
    def bytes(self) -> int:
        return self.pages * self.page_bytes


class MemoryLayout(msgspec.Struct, frozen=True):
    """Lay out one memory: the sizes of its pools, and where it is. A pool without pages is not there.

    `stages` are those for which it has all that they need, and `networks` are what of the model is in it.
    """

    kv: PoolSize
    patch: PoolSize
    visual: PoolSize
    weights: str = ""  # name of those of its networks; empty: there are none
    stages: tuple[Stage, ...] = tuple(Stage)
    place: str = "host"
    node: int | None = None  # of NUMA, that the bytes are to come from; None: any
    networks: tuple[Network, ...] = tuple(Network)
    further_weights: tuple[str, ...] = ()  # names of those of the ranks after the first one
    further_places: tuple[str, ...] = ()  # of these ranks, each of which has its keys and values there, too

    @property
    def weights_of_ranks(self) -> tuple[str, ...]:
        """Return the names of each rank's weights; none if there are no weights."""
        return (self.weights, *self.further_weights) if self.weights else ()

    @property
    def place_of_ranks(self) -> tuple[str, ...]:
        """Return where each rank has its weights."""
        return (self.place, *(self.further_places or [self.place] * len(self.further_weights)))

    @property
    def kv_of_ranks(self) -> dict[str, str]:
        """Return names and places of ranks' keys and values in memories of their own."""
        ranks = zip(self.further_weights, self.further_places, strict=False)
        return {f"{weights}-kv": place for weights, place in ranks}

    @property
    def pools(self) -> dict[str, PoolSize]:
        """Return the sizes of the pools that there are, by name."""
        sizes = {"kv": self.kv, "patch": self.patch, "visual": self.visual}
        return {name: size for name, size in sizes.items() if size.pages}

    @property
    def kv_bytes_of_ranks(self) -> int:
        """Return the bytes of the keys and values of all ranks."""
        return self.kv.bytes * (1 + len(self.kv_of_ranks))

    def buffers(self) -> dict[str, int]:
        """Return the bytes of the buffers for media, by purpose."""
        return {"patch buffer": self.patch.bytes, "visual buffer": self.visual.bytes}


class EngineLayout(msgspec.Struct, frozen=True):
    """Name and size all that the processes of the engine `engine_id` share: its memories, by name, and queues."""

    engine_id: str
    memories: dict[str, MemoryLayout]
    instances: tuple[str, ...]
    state_pages: int = 0  # pages of the KV cache for each sequence's recurrent state
    pools_id: str = ""  # of the pools, which may be older than the queues; empty: as old
    incarnations: dict[str, int] = {}  # how often each instance's worker was replaced alone, by its name
    sequences: int = 0  # that an instance decodes at once

    def arena(self, name: str) -> str:
        """Return the name of an arena of this engine."""
        return f"{self.engine_id}-{name}"

    def incarnation(self, instance: str) -> int:
        """Return how often an instance's worker was replaced alone."""
        return self.incarnations.get(instance, 0)

    def inbox(self, name: str) -> str:
        """Return the name of an inbox's arena: each incarnation of an instance has one of its own."""
        return self.arena(f"inbox-{name}-{self.incarnation(name)}")

    def reborn(self, instance: str, incarnation: int) -> "EngineLayout":
        """Return the layout in which an instance has this incarnation."""
        return msgspec.structs.replace(self, incarnations={**self.incarnations, instance: incarnation})

    def pool(self, key: PoolKey) -> str:
        """Return the name of a pool's arena."""
        memory, name = key
        return f"{self.pools_id or self.engine_id}-{memory}-{name}"

    @property
    def pools(self) -> dict[PoolKey, PoolSize]:
        """Return the pools' sizes."""
        return {(memory, name): size for memory, own in self.memories.items() for name, size in own.pools.items()}

    @property
    def only(self) -> MemoryLayout:
        """Return the single memory of an engine that has no others. Raises ValueError if there are several."""
        (memory,) = self.memories.values()
        return memory

    @property
    def places(self) -> list[str]:
        """Return where memories are, each once."""
        return list(dict.fromkeys(memory.place for memory in self.memories.values()))

    def at(self, place: str) -> "EngineLayout":
        """Return the layout with the memories of a place alone."""
        there = {name: memory for name, memory in self.memories.items() if memory.place == place}
        return msgspec.structs.replace(self, memories=there)

    @property
    def queue_bytes(self) -> int:
        """Return the bytes of all queues and tables, which are in host memory."""
        tables = SequenceTables.bytes(len(self.instances), self.sequences, self.table_pages)
        return (1 + len(self.instances)) * _INBOX_BYTES + tables

    @property
    def table_pages(self) -> int:
        """Return the most pages of a sequence whose page table is kept."""
        return min(_MOST_TABLE_PAGES, max(memory.kv.pages for memory in self.memories.values()))

    def smallest(self, pool: str) -> tuple[str, PoolSize]:
        """Return the smallest pool of a name, behind the name of its memory."""
        sizes = {memory: size for (memory, name), size in self.pools.items() if name == pool}
        return min(sizes.items(), key=lambda item: item[1].pages)

    @property
    def kv_bytes(self) -> int:
        """Return the bytes of the KV caches in all memories."""
        return sum(memory.kv.bytes for memory in self.memories.values())

    def buffers(self) -> dict[str, int]:
        """Return the bytes of the buffers for media in all memories, by purpose."""
        return dict(sum((Counter(memory.buffers()) for memory in self.memories.values()), Counter()))

    def segments(self, weights: Mapping[str, Sequence[int]]) -> dict[str, dict[str, int]]:
        """Return the bytes of the segments in each memory, by purpose; `weights` has those of each rank's weights."""
        return {
            memory: {"weights": sum(weights[memory]), "KV cache": own.kv_bytes_of_ranks, **own.buffers()}
            for memory, own in self.memories.items()
        }


def create_pages(layout: EngineLayout, prefix: str) -> dict[PoolKey, Memory]:
    """Take the memory of all pools' pages; raises ipc_buffers.ArenaError, and takes none, if there is too little."""
    pages: dict[PoolKey, Memory] = {}
    try:
        for (memory, name), size in layout.pools.items():
            own = layout.memories[memory]
            with near_node(own.node):
                pages[memory, name] = Memory.create(f"{prefix}-{memory}-{name}-pages", size.bytes, own.place)
        for memory, own in layout.memories.items():
            for name, place in own.kv_of_ranks.items():
                pages[memory, name] = Memory.create(name, own.kv.bytes, place)
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
    """Hold the page pools, the stages' status, the workers' pulses, and every process's inbox.

    The pools are those of all memories.
    """

    def __init__(
        self,
        layout: EngineLayout,
        status: Arena,
        pulses: Arena,
        sequences: Arena,
        pools: dict[PoolKey, PagePool],
        inboxes: dict[str, MessageQueue],
    ) -> None:
        self.layout = layout
        self.status = Status(status, layout.instances, list(layout.memories))
        self.pulses = Pulses(pulses, layout.instances)
        self.sequences = SequenceTables(sequences, layout.instances, layout.sequences, layout.table_pages)
        self.pools = pools
        self.inboxes = inboxes
        self._abandoned: list[MessageQueue] = []
        self._unread: dict[str, tuple[MessageQueue, list[bytes]]] = {}  # by instance: its last abandoned inbox

    @classmethod
    def create(
        cls, layout: EngineLayout, pages: Mapping[PoolKey, Memory], pools: Mapping[PoolKey, PagePool] | None = None
    ) -> "SharedMemory":
        """Create all segments over the pools' pages, which stay when these go; `pools` that there are stay, too.

        Raises ipc_buffers.ArenaError with the sizes, and leaves nothing, if they do not fit.
        """
        memory = cls(
            layout,
            Status.create(layout.arena("status"), layout.instances, list(layout.memories)),
            Pulses.create(layout.arena("pulses"), layout.instances),
            SequenceTables.create(layout.arena("sequences"), layout.instances, layout.sequences, layout.table_pages),
            {},
            {},
        )
        try:
            for key, size in layout.pools.items():
                kept = pools[key] if pools else None
                memory.pools[key] = kept or PagePool.over(layout.pool(key), pages[key], size.page_bytes)
            for name in (ENGINE_INBOX, *layout.instances):
                memory.inboxes[name] = MessageQueue.create(layout.inbox(name), _INBOX_BYTES)
        except BaseException:
            memory.unlink()
            raise
        return memory

    @classmethod
    def attach(cls, layout: EngineLayout, memories: Collection[str]) -> "SharedMemory":
        """Map the pools of these memories, and all that is of no memory."""
        return cls(
            layout,
            Arena.attach(layout.arena("status")),
            Arena.attach(layout.arena("pulses")),
            Arena.attach(layout.arena("sequences")),
            {key: PagePool.attach(layout.pool(key)) for key in layout.pools if key[0] in memories},
            {name: MessageQueue.attach(layout.inbox(name)) for name in (ENGINE_INBOX, *layout.instances)},
        )

    def of(self, memory: str) -> dict[str, PagePool]:
        """Return the pools of a memory, by name."""
        return {name: pool for (each, name), pool in self.pools.items() if each == memory}

    def named(self, pool: str) -> dict[str, PagePool]:
        """Return the pools of a name, by memory."""
        return {memory: each for (memory, name), each in self.pools.items() if name == pool}

    def reclaim(self, uid: int, number: int | None = None) -> int:
        """Free every page that is still tagged with a request. Returns how many there were.

        If there is a `number`, only pages that this instance took.
        """
        return sum(pool.reclaim(request=uid, instance=number) for pool in self.pools.values())

    def reclaim_in(self, memory: str, uid: int, *, spared: str) -> None:
        """Free the pages of a memory that are tagged with a request. Those that the instance `spared` took stay."""
        numbers = {self.number(instance) for instance in self.layout.instances} - {self.number(spared)}
        for pool in self.of(memory).values():
            for number in numbers:
                pool.reclaim(request=uid, instance=number)

    def reclaim_media(self, uid: int) -> None:
        """Free the pages of the buffers for media that are tagged with a request."""
        for name in ("patch", "visual"):
            for pool in self.named(name).values():
                pool.reclaim(request=uid)

    def requests(self) -> set[int]:
        """Return the requests that pages are tagged with."""
        return {uid for pool in self.pools.values() for uid in pool.requests()}

    def number(self, instance: str) -> int:
        """Return the number that tags the pages which an instance takes."""
        return 1 + self.layout.instances.index(instance)

    def bear_anew(self, instance: str) -> int:
        """Begin the next incarnation of an instance whose worker has died. Returns its number.

        The messages in its inbox are `unread`, and a sender that waits for room there goes on. Raises ArenaError if
        there is no memory for another inbox.
        """
        incarnation = self.layout.incarnation(instance) + 1
        layout = self.layout.reborn(instance, incarnation)
        inbox = MessageQueue.create(layout.inbox(instance), _INBOX_BYTES)
        self._abandoned.append(self.inboxes[instance])
        self.layout, self.inboxes[instance] = layout, inbox
        self._unread[instance] = self._abandoned[-1], []
        self.unread(instance)
        self.status.leave(instance)
        self.pulses.leave(instance)
        return incarnation

    def unread(self, instance: str) -> list[bytes]:
        """Return the messages that an instance's dead worker has not taken out.

        More may come until the others hear of the next incarnation.
        """
        if instance not in self._unread:
            return []
        inbox, messages = self._unread[instance]
        while more := inbox.receive_many(_MOST_MESSAGES, timeout=0):
            messages += more
        return messages

    def follow(self, instance: str, incarnation: int) -> None:
        """Send to this incarnation of an instance from now on, if it is later."""
        if incarnation > self.layout.incarnation(instance):
            self.layout = self.layout.reborn(instance, incarnation)
            self.inboxes[instance] = MessageQueue.attach(self.layout.inbox(instance))

    def remove_abandoned(self) -> None:
        """Remove the inboxes of workers that have died, when nobody attaches to them any more."""
        abandoned, self._abandoned = self._abandoned, []
        self._unread.clear()
        for inbox in abandoned:
            inbox.close()
            inbox.unlink()

    def check_integrity(self) -> None:
        """Raise PoolError if any pool is damaged. No request may be in flight."""
        for (memory, name), pool in self.pools.items():
            check_pool(f"{memory} {name}" if len(self.layout.memories) > 1 else name, pool)

    def hand_over_pools(self) -> dict[PoolKey, PagePool]:
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
            self.sequences.arena,
            *self.pools.values(),
            *self.inboxes.values(),
            *self._abandoned,
        ]
        for part in parts:
            part.close()
            part.unlink()
