"""Confine the vision worker to what it needs: it runs decoders over whatever strangers send."""

import importlib
import logging
import os
import resource
from pathlib import Path

from unifiedserve.config import MIB, DeviceName, EngineConfig
from unifiedserve.device import files_of
from unifiedserve.errors import ConfigError
from unifiedserve.sandbox import code_paths, give_up
from unifiedserve.worker.fork_obstacles import further_threads
from unifiedserve.worker.spec import WorkerSpec

_log = logging.getLogger(__name__)
_SHARED_MEMORY = "/dev/shm"
_OWN_MIB = 4096  # of the libraries and of videos' decoders, beside images
_BYTES_A_PIXEL = 16  # of an image on its way: decoded, turned, resized


def confine(spec: WorkerSpec) -> None:
    """Give up what is not needed, if this worker only decodes. It must not have threads yet.

    Raises ConfigError if an import has started some and `--sandbox require` forbids that.
    """
    if spec.instance.only_decodes_media and spec.config.machine.sandbox != "off":
        leave_decoding(spec.config, spec.device)


def leave_decoding(config: EngineConfig, device: DeviceName) -> None:
    """Leave this process what decoding media takes, on cores or on a GPU."""
    importlib.import_module("flashcodec.serving")  # FFmpeg, while its files can be read
    on_gpu = device == "cuda"
    _check_threads(required=config.machine.sandbox == "require")
    media = config.media.allowed_local_media_path
    give_up(
        readable=[*code_paths(), *([str(Path(media).resolve())] if media else [])],
        writable=[_SHARED_MEMORY, *files_of(device)],
        unix_sockets=on_gpu,  # of CUDA and MPS
    )
    if not on_gpu:  # whose driver maps more than it takes
        threads = config.machine.vision_threads or len(os.sched_getaffinity(0))
        _limit_memory(_OWN_MIB * MIB + threads * config.media.max_image_pixels * _BYTES_A_PIXEL)


def _check_threads(*, required: bool) -> None:
    """Warn of threads that there are already: Landlock confines only the calling one and those to come."""
    if threads := further_threads():
        reason = f"the sandbox leaves files to what runs already in the vision worker: {', '.join(threads)}"
        if required:
            raise ConfigError(f"--sandbox require: {reason}")
        _log.warning("%s", reason)


def _limit_memory(size: int) -> None:
    """Let the process have so many bytes of its own, shared buffers not counted; more is a MemoryError."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    size = size if most == resource.RLIM_INFINITY else min(size, most)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
