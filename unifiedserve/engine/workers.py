"""Hold the workers, and the engine's connection to them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from unifiedserve.config import EngineConfig
from unifiedserve.engine.caches import Caches
from unifiedserve.engine.learned import Learned
from unifiedserve.engine.link import Link
from unifiedserve.engine.supervisor import Supervisor
from unifiedserve.engine.threads import in_thread, open_in_thread
from unifiedserve.engine.worker_processes import OnExit
from unifiedserve.memory.shared import SharedMemory
from unifiedserve.messages.encoding import Features
from unifiedserve.messages.wire import GrammarAhead, Message, Placed, Shutdown
from unifiedserve.models.processor import Processor
from unifiedserve.observe.broadcast import Broadcast
from unifiedserve.placement import Placement
from unifiedserve.profiles import HardwareProfile
from unifiedserve.reading.keeper import Nursery


@dataclass(frozen=True)
class WorkerEvents:
    """Call back about the workers, from threads."""

    messages: Callable[[list[Message]], None]
    exited: OnExit
    link_failed: Callable[[str], None]


class Workers:
    """Run the workers of one engine. Belongs to the engine's event loop; a restart replaces the pools, too."""

    def __init__(
        self,
        config: EngineConfig,
        processor: Processor,
        supervisor: Supervisor,
        broadcast: Broadcast,
        events: WorkerEvents,
    ) -> None:
        """Connect to workers that have been started."""
        self._config = config
        self._processor = processor
        self._supervisor = supervisor
        self._broadcast = broadcast
        self._events = events
        self._changing = asyncio.Lock()
        self._link, self.caches = self._connect()

    @classmethod
    async def start(
        cls, config: EngineConfig, model_dir: Path, processor: Processor, broadcast: Broadcast, events: WorkerEvents
    ) -> "Workers":
        """Allocate all memory, load the weights and start the workers. Raises ConfigError; then nothing is held."""
        supervisor = await open_in_thread(partial(_supervise, config, model_dir, processor, events), Supervisor.stop)
        return cls(config, processor, supervisor, broadcast, events)

    @property
    def memory(self) -> SharedMemory:
        """Return the pools and queues of the present workers."""
        return self._supervisor.memory

    @property
    def memory_uses(self) -> dict[str, int]:
        """Return the bytes taken of the computing device's memory, by use."""
        return self._supervisor.memory_uses

    @property
    def profile(self) -> HardwareProfile | None:
        """Return what is known of the model on the device before workers measure anything."""
        return self._supervisor.profile

    @property
    def features(self) -> Features:
        """Return what the visual tokens are that this engine has and takes."""
        return self._supervisor.features

    @property
    def nursery(self) -> Nursery:
        """Return what starts processes that read media, for the engine and its workers."""
        return self._supervisor.nursery

    def incarnation(self, instance: str) -> int:
        """Return how often an instance's worker was replaced alone."""
        return self.memory.layout.incarnation(instance)

    def arena_name(self, name: str) -> str:
        """Return a name for a further arena of this engine."""
        return self._supervisor.arena_name(name)

    def pids(self) -> dict[str, int]:
        """Return the process ids of the workers, by instance."""
        return self._supervisor.pids()

    def kill(self, instance: str) -> None:
        """Kill an instance's worker, which then counts as one that died."""
        self._supervisor.kill(instance)

    def send(self, instance: str, message: Message) -> None:
        """Queue a message for an instance. Raises RequestError for one that is too large for its inbox."""
        self._link.send(instance, message)

    def expect_grammar(self) -> None:
        """Have the workers load what grammars need, if they have not."""
        for instance in self._config.machine.workers.instances:
            self.send(instance.name, GrammarAhead())

    async def replace(self, name: str, decide: Callable[[], Placement | None], learned: Learned) -> None:
        """Replace one worker over the same memory, and tell the others. It has no part in any request.

        `decide` returns what placement it is one of, or None where all workers have been replaced meanwhile.
        """
        async with self._changing:
            if (placement := decide()) is None:
                return
            ask = partial(self.send, message=Shutdown())
            await in_thread(self._supervisor.replace, name, placement, ask, self._events.exited, learned)
            for other in placement.without([name]).instances:
                self.send(other.name, Placed(placement, name))

    @property
    def apart(self) -> bool:
        """Tell whether a worker's end leaves the others' work as it is."""
        return self._supervisor.apart

    async def sum_weights(self) -> list[int]:
        """Return a sum over the bytes of each host copy of the weights. Workers go on meanwhile."""
        return await in_thread(self._supervisor.sum_weights)

    async def keep_weights(self, sums: Sequence[int]) -> None:
        """Keep the weights on disk for the next start. `sums` are those of `sum_weights`."""
        await asyncio.to_thread(self._supervisor.keep_weights, sums)

    async def revive(self, name: str, placement: Callable[[], Placement | None], learned: Learned) -> None:
        """Start a worker in place of one that has died, over the same memory; raises ConfigError if it cannot be.

        `placement` returns what it is one of, or None where all workers have been replaced meanwhile.
        """
        async with self._changing:
            if (now := placement()) is not None:
                await in_thread(self._supervisor.revive, name, now, self._events.exited, learned)

    async def restart(
        self,
        placement: Placement,
        learned: Learned,
        *,
        damaged: bool = False,
        keeps: bool = False,
    ) -> None:
        """Replace the workers, their queues and pools.

        The contents of pages are lost, unless the caches are to be kept. The weights of each memory must add up to what
        was `learned` before; `damaged` ones are loaded again.
        """
        async with self._changing:
            await asyncio.to_thread(self._replace, placement, learned, damaged, keeps)
            self._link, caches = self._connect()
            self.caches = self.caches if keeps else caches
            self.caches.forget_addresses()

    async def stop(self) -> None:
        """End the workers and remove all shared memory."""
        async with self._changing:
            await asyncio.to_thread(self._shut_down)

    def _connect(self) -> tuple[Link, Caches]:
        placement, patches = self._config.machine.workers, self.memory.named("patch")
        shown = {each.name: patches[each.memory] for each in placement.instances if each.memory in patches}
        self._broadcast.show_frames_of(shown, self._processor.patch_row_bytes)
        link = Link(self.memory, self._events.messages, self._events.link_failed)
        return link, Caches(self._config, placement, self.memory.pools, self._processor)

    def _replace(self, placement: Placement, learned: Learned, damaged: bool, keeps: bool) -> None:
        self._link.close()
        self._supervisor.restart(placement, self._events.exited, learned, damaged=damaged, keeps=keeps)

    def _shut_down(self) -> None:
        try:
            self._link.close()
        finally:
            self._broadcast.close()
            self._supervisor.stop()


def _supervise(config: EngineConfig, model_dir: Path, processor: Processor, events: WorkerEvents) -> Supervisor:
    supervisor = Supervisor(config, model_dir, processor)
    try:
        supervisor.start(config.machine.workers, events.exited, Learned())
    except BaseException:
        supervisor.stop()
        raise
    return supervisor
