"""The supervisor: owns the shared memory and the worker processes of one engine."""

import logging
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import torch

from ipc_buffers import Arena, ArenaError, remove_stale_arenas
from unifiedserve.attention import slowness
from unifiedserve.config import MIB, EngineConfig, Instance
from unifiedserve.errors import ConfigError
from unifiedserve.memory.kv_cache import KVLayout
from unifiedserve.memory.shared import MemoryLayout, PoolSize, SharedMemory
from unifiedserve.memory.weights import load_weights, weights_bytes
from unifiedserve.messages import Shutdown, pack
from unifiedserve.models.base import Processor
from unifiedserve.resources import best_dtype, check_memory, check_threads
from unifiedserve.worker import WorkerSpec

_log = logging.getLogger(__name__)
_STOP_SECONDS = 10.0

OnExit = Callable[[str, int, int], None]  # instance, exit code, generation


class Supervisor:
    """Creates what workers attach to, starts them, notices when one dies, and leaves nothing behind."""

    def __init__(self, config: EngineConfig, model_dir: Path, processor: Processor) -> None:
        self.config = config
        self._model_dir = model_dir
        self._processor = processor
        self._dtype = best_dtype() if config.dtype == "auto" else config.dtype
        self._engine_id = f"{os.getpid()}-{secrets.token_hex(3)}"
        self.generation = 0  # of workers: how often they were restarted
        self._weights: Arena | None = None
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = False
        self.memory: SharedMemory

    def start(self, on_exit: OnExit) -> None:
        """Allocate everything, load the weights once and start the workers.

        `on_exit` is called from a thread when a worker ends that was not told to. Raises
        ConfigError, with the numbers, if the machine has too few cores or too little memory.
        """
        check_threads(self.config)
        remove_stale_arenas()
        layout = self._layout()
        check_memory(self._shared_bytes(layout), len(layout.instances))
        if warning := slowness():
            _log.warning(warning)
        try:
            self.memory = SharedMemory.create(layout)
            self._weights = load_weights(self._model_dir, f"{self._engine_id}-weights", getattr(torch, self._dtype))
        except ArenaError as error:
            self.stop()
            raise ConfigError(f"shared memory: {error}") from error
        except BaseException:
            self.stop()
            raise
        self._start_workers(on_exit)

    def restart(self, on_exit: OnExit) -> None:
        """After a worker died: fresh pools, queues and workers over the same weights."""
        self._kill_workers()
        self.memory.unlink()
        self.generation += 1
        self.memory = SharedMemory.create(self._layout())
        self._start_workers(on_exit)

    def stop(self) -> None:
        """End the workers and remove every shared segment; safe to call at any time."""
        self._stopping = True
        if hasattr(self, "memory"):
            for name in self._workers:
                with suppress(TimeoutError):  # a full inbox means a stuck worker: it is killed below
                    self.memory.inboxes[name].send(pack(Shutdown()), timeout=1.0)
            self._kill_workers(grace=_STOP_SECONDS)
            self.memory.unlink()
        if self._weights is not None:
            self._weights.close()
            self._weights.unlink()
            self._weights = None

    def pids(self) -> dict[str, int]:
        """Process ids of the workers, by instance."""
        return {name: process.pid for name, process in self._workers.items()}

    def arena_name(self, name: str) -> str:
        """A name for a further arena of this engine."""
        return f"{self._engine_id}-{name}"

    def _layout(self) -> MemoryLayout:
        config, processor = self.config, self._processor
        dtype = getattr(torch, self._dtype)
        kv = KVLayout.of(processor.config, config.kv_page_tokens, dtype)
        return MemoryLayout(
            engine_id=f"{self._engine_id}-{self.generation}",
            weights=f"{self._engine_id}-weights",
            kv=_pool("kv_cache_mib", config.kv_cache_mib, kv.page_bytes),
            patch=_pool(
                "patch_buffer_mib",
                config.patch_buffer_mib,
                config.patch_page_rows * processor.patch_row_bytes,
            ),
            visual=_pool(
                "visual_buffer_mib",
                config.visual_buffer_mib + config.visual_cache,
                config.visual_page_tokens * processor.visual_dim * dtype.itemsize,
            ),
            instances=tuple(instance.name for instance in config.workers.instances),
            state_pages=kv.state_pages,
        )

    def _shared_bytes(self, layout: MemoryLayout) -> dict[str, int]:
        weights = weights_bytes(self._model_dir, getattr(torch, self._dtype))
        return {"weights": weights, **layout.segments()}

    def _start_workers(self, on_exit: OnExit) -> None:
        for number, instance in enumerate(self.config.workers.instances, 1):
            process = self._start_worker(instance, number)
            self._workers[instance.name] = process
            watched = (instance.name, process, on_exit)
            threading.Thread(target=self._watch, args=watched, name="watch", daemon=True).start()

    def _start_worker(self, instance: Instance, number: int) -> "subprocess.Popen[bytes]":
        spec = WorkerSpec(
            config=self.config,
            instance=instance,
            number=number,
            supervisor=os.getpid(),
            layout=self.memory.layout,
            model_dir=str(self._model_dir),
            dtype=self._dtype,
            patch_row_bytes=self._processor.patch_row_bytes,
            visual_dim=self._processor.visual_dim,
            vocab_size=self._processor.vocab_size,
            eos_token_ids=self._processor.eos_token_ids,
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "unifiedserve.worker"],
            stdin=subprocess.PIPE,
            env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ},  # spinning threads take the cores of other workers
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(spec))
        process.stdin.close()
        return process

    def _watch(self, name: str, process: "subprocess.Popen[bytes]", on_exit: OnExit) -> None:
        generation = self.generation
        code = process.wait()
        if not self._stopping and self._workers.get(name) is process:
            _log.error("worker %s ended with code %d", name, code)
            on_exit(name, code, generation)

    def _kill_workers(self, grace: float = 0.0) -> None:
        workers, self._workers = self._workers, {}
        for process in workers.values():
            try:
                process.wait(grace)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _pool(option: str, mib: int, page_bytes: int) -> PoolSize:
    pages = mib * MIB // page_bytes
    if pages == 0:
        raise ConfigError(f"{option}={mib} is too small: one page of this model takes {page_bytes} bytes")
    return PoolSize(pages, page_bytes)
