"""The supervisor: owns the shared memory and the worker processes of one engine."""

from contextlib import suppress
from pathlib import Path

from ipc_buffers import ArenaError, remove_stale_arenas
from unifiedserve.config import EngineConfig, Instance
from unifiedserve.device import open_device
from unifiedserve.device.selection import select_device
from unifiedserve.engine.engine_memory import EngineMemory
from unifiedserve.engine.resources import check_threads
from unifiedserve.engine.worker_processes import OnExit, WorkerProcesses
from unifiedserve.errors import ConfigError
from unifiedserve.memory.shared import SharedMemory
from unifiedserve.messages.wire import Shutdown, pack
from unifiedserve.models.base import Processor
from unifiedserve.worker.spec import WorkerSpec


class Supervisor:
    """Creates what workers attach to, starts them, restarts them over fresh memory, and leaves nothing behind."""

    def __init__(self, config: EngineConfig, model_dir: Path, processor: Processor) -> None:
        """Allocate everything and load the weights once.

        Raises ConfigError, with the numbers, if the machine has too few cores or too little memory, or not the device.
        """
        check_threads(config)
        self._device = open_device(select_device(config.device))
        remove_stale_arenas()
        self.config = config
        self._model_dir = model_dir
        self._processor = processor
        try:
            self._memory = EngineMemory(config, model_dir, processor, self._device)
        except ArenaError as error:
            raise ConfigError(f"shared memory: {error}") from error
        self._workers = WorkerProcesses()

    @property
    def memory(self) -> SharedMemory:
        """The pools and queues of the present workers."""
        return self._memory.shared

    def start(self, on_exit: OnExit) -> None:
        """Start the workers; `on_exit` is called from a thread when one ends that was not told to."""
        instances = self.config.workers.instances
        specs = [self._spec(instance, number) for number, instance in enumerate(instances, 1)]
        self._workers.start(specs, self._memory.generation, on_exit)

    def restart(self, on_exit: OnExit) -> None:
        """Replace pools, queues and workers, over the same weights, after a worker died."""
        self._workers.kill()
        self._memory.renew()
        self.start(on_exit)

    def stop(self) -> None:
        """End the workers and remove every shared segment; safe to call at any time."""
        self._workers.stop(self._ask_to_end)
        self._memory.free()

    def pids(self) -> dict[str, int]:
        """Return the process ids of the workers, by instance."""
        return self._workers.pids()

    def arena_name(self, name: str) -> str:
        """Return a name for a further arena of this engine."""
        return self._memory.arena_name(name)

    def _spec(self, instance: Instance, number: int) -> WorkerSpec:
        return WorkerSpec(
            config=self.config,
            placement=self.config.workers,
            instance=instance,
            number=number,
            layout=self.memory.layout,
            device=self._device.name,
            model_dir=str(self._model_dir),
            dtype=self._memory.dtype,
            patch_row_bytes=self._processor.patch_row_bytes,
            visual_dim=self._processor.visual_dim,
            vocab_size=self._processor.vocab_size,
            eos_token_ids=self._processor.eos_token_ids,
        )

    def _ask_to_end(self, instance: str) -> None:
        with suppress(TimeoutError):  # a full inbox means a stuck worker, which is killed
            self.memory.inboxes[instance].send(pack(Shutdown()), timeout=1.0)
