"""Supervise one engine: own its shared memory and its worker processes."""

import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path

from ipc_buffers import ArenaError, MessageQueue, remove_stale_arenas
from unifiedserve import __version__
from unifiedserve.config import EngineConfig, carrier_token, required_cluster_key
from unifiedserve.device import Device, open_device, select_device
from unifiedserve.engine.device_room import RoomError
from unifiedserve.engine.engine_memory import EngineMemory
from unifiedserve.engine.known_profile import known_profile
from unifiedserve.engine.known_shares import KnownShares
from unifiedserve.engine.learned import Learned
from unifiedserve.engine.rehearsal import PLACEMENT as REHEARSAL
from unifiedserve.engine.rehearsal import Footprint, instance_of, rehearse, small_medium
from unifiedserve.engine.resources import check_memories, check_packages, check_sandbox, check_threads
from unifiedserve.engine.worker_processes import OnExit, WorkerProcesses
from unifiedserve.errors import ConfigError
from unifiedserve.memory.shared import ENGINE_INBOX, EngineLayout, SharedMemory
from unifiedserve.messages.encoding import Features
from unifiedserve.messages.media import MediaPlan
from unifiedserve.messages.wire import Ended, Shutdown, pack
from unifiedserve.models.processor import Processor
from unifiedserve.observe.start import begin_step
from unifiedserve.placement import Instance, Placement, Stage
from unifiedserve.profiles import HardwareProfile
from unifiedserve.profiles.digest import model_digest
from unifiedserve.reading.jobs import Setup
from unifiedserve.reading.keeper import Nursery
from unifiedserve.worker.spec import WorkerSpec

_log = logging.getLogger(__name__)
_TOKEN_BYTES = 32
_PATIENCE_SECONDS = 5.0  # with an engine that reads no messages


class Supervisor:
    """Create what workers attach to, start and restart them, and leave nothing behind.

    A restart is over fresh memory.
    """

    def __init__(self, config: EngineConfig, model_dir: Path, processor: Processor) -> None:
        """Allocate everything and load the weights once.

        Raises ConfigError, with the numbers, if the machine has too few cores or too little memory, or not the device.
        """
        check_threads(config)
        check_memories(config)
        check_packages(config)
        check_sandbox(config)
        self._device = select_device(config)
        remove_stale_arenas()
        self.config = config
        self._model_dir = model_dir
        self._processor = processor
        placement = config.machine.workers
        self._carrier_token = (
            secrets.token_hex(_TOKEN_BYTES)
            if placement.is_whole
            else carrier_token(required_cluster_key(placement.name))
        )
        self._device.sharing.start()
        self.nursery = Nursery(Setup.of(config))
        try:
            self._memory = self._allocate()
        except BaseException:
            self.nursery.close()
            self._device.sharing.stop()
            raise
        self._workers = WorkerProcesses(self.nursery)

    @cached_property
    def _medium(self) -> MediaPlan | None:
        """Return a medium with which workers try out steps. None where they do not, or the model takes none."""
        return small_medium(self._processor) if self.config.scheduling.budgets == "profiled" else None

    @cached_property
    def profile(self) -> HardwareProfile | None:
        """Return what is known of the model on the device before anything is measured here."""
        return known_profile(self.config, self._model_dir, self._memory.dtype, self._device)

    def _allocate(self) -> EngineMemory:
        """Take the memory; where the device has too little and the user did not insist on it, the host's."""
        try:
            return self._allocate_on(self._device)
        except RoomError as error:
            if self.config.machine.device != "auto" or self.config.machine.workers.gpus:
                raise
            _log.warning("computing on the CPU: %s", error)
        self._device.sharing.stop()
        self._device = open_device("cpu", self.config)
        return self._allocate_on(self._device)

    def _allocate_on(self, device: Device) -> EngineMemory:
        def try_out(memory: SharedMemory, dtype: str, stages: Collection[Stage]) -> Footprint:
            spec = self._spec(instance_of(stages), 1, memory.layout, dtype, REHEARSAL, Learned())
            return rehearse(spec, memory, device.at(spec.memory.place), self._processor, KnownShares())

        try:
            return EngineMemory(self.config, self._model_dir, self._processor, device, try_out)
        except ArenaError as error:
            raise ConfigError(f"shared memory: {error}") from error

    @property
    def memory(self) -> SharedMemory:
        """Return the pools and queues of the present workers."""
        return self._memory.shared

    @property
    def features(self) -> Features:
        """Return what the visual tokens are that this engine has and takes."""
        digest, width = model_digest(self._model_dir), self._processor.visual_dim
        return Features(digest, __version__, self._memory.dtype, width, self.config.memory.visual_page_tokens)

    @property
    def memory_uses(self) -> dict[str, int]:
        """Return the bytes taken of the computing device's memory, by use."""
        return self._memory.uses

    def start(self, placement: Placement, on_exit: OnExit, learned: Learned) -> None:
        """Start the workers; `on_exit` is called from a thread when one ends that was not told to."""
        begin_step(f"starting the workers: {', '.join(instance.name for instance in placement.instances)}")
        self._start(self._specs(placement, learned), on_exit)

    def replace(
        self,
        name: str,
        placement: Placement,
        ask: Callable[[str], None],
        on_exit: OnExit,
        learned: Learned,
    ) -> None:
        """End a worker as `ask` tells it to, and start its successor. `placement` says what that hosts.

        It holds no pages: those that it took have gone to others. `on_exit` is told if either cannot be.
        """
        if not self._workers.end_one(name, ask):
            return
        self.memory.status.leave(name)
        specs = [spec for spec in self._specs(placement, learned) if spec.instance.name == name]
        try:
            self._start(specs, on_exit)
        except ConfigError as error:
            _log.error("%s", error)
            on_exit(name, 1, self._memory.generation)

    @property
    def apart(self) -> bool:
        """Tell whether a worker's end leaves the others' work as it is."""
        return self._device.sharing.apart

    def sum_weights(self) -> list[int]:
        """Return a sum over the bytes of each copy of the weights in host memory; blocks while they are read."""
        return self._memory.weights.sum()

    def keep_weights(self, sums: Sequence[int]) -> None:
        """Keep the weights on disk for the next start; blocks. `sums` are those of `sum_weights`."""
        self._memory.weights.keep(sums)

    def revive(self, name: str, placement: Placement, on_exit: OnExit, learned: Learned) -> None:
        """Start a worker in place of one that has died, over the same memory. Raises ConfigError if it cannot be."""
        specs = self._specs(placement, learned)
        self._start([spec for spec in specs if spec.instance.name == name], on_exit)

    def restart(
        self,
        placement: Placement,
        on_exit: OnExit,
        learned: Learned,
        *,
        damaged: bool = False,
        keeps: bool = False,
    ) -> None:
        """Replace pools, queues and workers, over the same weights, after a worker died.

        A fault on a GPU ends all workers that share it. Sharing must be begun again. Its memory stays: the weights of
        each must add up to what was `learned` before; `damaged` ones are loaded again. `keeps`: the contents of pages
        can be reused.
        """
        self._workers.kill(self._device.sharing.terminate)
        self._device.sharing.start()
        self._memory.renew(keeps=keeps)
        if damaged:
            _log.warning("loading the weights anew: what is in the device's memory has been damaged")
            self._memory.weights.load_again()
        self.start(placement, on_exit, learned)

    def stop(self) -> None:
        """End the workers and remove every shared segment; safe to call at any time."""
        try:
            self._workers.stop(self._ask_to_end, self._device.sharing.terminate)
        finally:
            self.nursery.close()
            self._device.sharing.stop()
            self._memory.free()

    def pids(self) -> dict[str, int]:
        """Return the process ids of the workers, by instance."""
        return self._workers.pids()

    def kill(self, instance: str) -> None:
        """Kill one worker, as if it had died by itself."""
        self._workers.kill_one(instance)

    def arena_name(self, name: str) -> str:
        """Return a name for a further arena of this engine."""
        return self._memory.arena_name(name)

    def _start(self, specs: Sequence[WorkerSpec], on_exit: OnExit) -> None:
        told = partial(_tell_in_order, self.memory.inboxes[ENGINE_INBOX], on_exit)
        self._workers.start(specs, self._device.sharing.environment, self._memory.generation, told)

    def _specs(self, placement: Placement, learned: Learned) -> list[WorkerSpec]:
        layout, dtype, share = self.memory.layout, self._memory.dtype, self._memory.share
        return [
            self._spec(instance, number, layout, dtype, placement, learned, share, self.profile)
            for number, instance in enumerate(placement.instances, 1)
        ]

    def _spec(
        self,
        instance: Instance,
        number: int,
        layout: EngineLayout,
        dtype: str,
        placement: Placement,
        learned: Learned,
        share: float = 1.0,
        profile: HardwareProfile | None = None,
    ) -> WorkerSpec:
        return WorkerSpec(
            config=self.config,
            placement=placement,
            instance=instance,
            number=number,
            layout=layout,
            device=self._device.name,
            model_dir=str(self._model_dir),
            dtype=dtype,
            patch_row_bytes=self._processor.patch_row_bytes,
            visual_dim=self._processor.visual_dim,
            vocab_size=self._processor.vocab_size,
            eos_token_ids=self._processor.eos_token_ids,
            weights_sum=learned.weights_sums.get(instance.memory),
            decode_step=learned.decode_step(instance.name),
            share=share,
            medium=self._medium,
            profile=profile,
            carrier_token=self._carrier_token,
        )

    def _ask_to_end(self, instance: str) -> None:
        with suppress(TimeoutError):  # a full inbox means a stuck worker, which is killed
            self.memory.inboxes[instance].send(pack(Shutdown()), timeout=1.0)


def _tell_in_order(inbox: MessageQueue, on_exit: OnExit, name: str, code: int, generation: int) -> None:
    """Tell the engine of a worker's end, behind all that it has sent if possible."""
    try:
        inbox.send(pack(Ended(name, code, generation)), timeout=_PATIENCE_SECONDS)
    except (TimeoutError, ArenaError):
        on_exit(name, code, generation)
