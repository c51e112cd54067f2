"""Check whether a GPU can be used, before anything is started on it.

It finds out as far as can be known.
"""

from __future__ import annotations

import glob
import importlib.util
import os

import torch

from ipc_buffers import ArenaError, Gpu, list_gpus
from unifiedserve.config import EngineConfig, named_gpus
from unifiedserve.device.cuda.mps_daemon import LOGS, PIPES
from unifiedserve.errors import ConfigError

#: what the pointwise kernels know
DTYPES = frozenset({"float32", "bfloat16", "float16"})
OLDEST = (7, 5)  # compute capability: torch's builds for CUDA 13 know none before Turing
OLDEST_FOR_BFLOAT16 = (8, 0)
_FILES = ("/dev/nvidia*", "/dev/nvidia-caps/*")
_THREADS = "/proc/self/task"  # CUDA does not start where it cannot write its threads' names there


def obstacle(config: EngineConfig) -> str | None:
    """Say in a line why a GPU for the engine cannot be used. None if all can."""
    try:
        gpus = used_gpus(config)
    except (ArenaError, ConfigError) as error:
        return str(error)
    return next(filter(None, map(_obstacle, gpus)), None)


def _obstacle(gpu: Gpu) -> str | None:
    built_for = torch.version.cuda
    if built_for is None:
        return f"{gpu.name} is there, but torch {torch.__version__} is built without CUDA: install a CUDA build of it"
    if _major(built_for) > gpu.driver[0]:
        return (
            f"the driver of {gpu.name} supports CUDA {_dotted(gpu.driver)}, but torch {torch.__version__} is built for "
            f"{built_for}: update the driver, or install a torch for CUDA {gpu.driver[0]}"
        )
    if gpu.capability < OLDEST:
        return f"{gpu.name} has compute capability {_dotted(gpu.capability)}; {_dotted(OLDEST)} or later is needed"
    if gpu.compute_mode != "default":
        return (
            f"{gpu.name} is in compute mode {gpu.compute_mode}, but several processes are to use it: "
            "nvidia-smi --compute-mode DEFAULT"
        )
    if importlib.util.find_spec("triton") is None:
        return f"{gpu.name} is there, but the package triton is missing: pip install triton"
    return None


def files() -> list[str]:
    """Return the GPU's devices, the folders of MPS and where threads get their names."""
    devices = [path for pattern in _FILES for path in glob.glob(pattern)]
    return [_THREADS, *devices] + [path for name in (PIPES, LOGS) if (path := os.environ.get(name))]


def has_gpu() -> bool:
    """Return whether the driver sees one, of whatever use it is."""
    try:
        return bool(list_gpus())
    except ArenaError:
        return False


def used_gpus(config: EngineConfig) -> list[Gpu]:
    """Return the GPUs of an engine's memories, as the engine's process numbers them: in order of CUDA_VISIBLE_DEVICES.

    Raises ArenaError without any GPU, and ConfigError for one that is not there.
    """
    used, there = config.machine.gpus_of_memories, list_gpus()
    for memory, gpus in used.items():
        if gpus.stop > len(there):
            seen = "1 GPU" if len(there) == 1 else f"{len(there)} GPUs"
            where = f"--placement {config.machine.placement} has {memory} on {named_gpus(gpus)}"
            raise ConfigError(
                f"{where}, but this process sees {seen} (CUDA_VISIBLE_DEVICES says which): name others, as in "
                "d@mem1,cuda:0, or have fewer ranks"
            )
    return [there[number] for number in sorted({number for gpus in used.values() for number in gpus})]


def gpu_of(place: str) -> Gpu:
    """Return the GPU of a place, `cuda:1`, as this process numbers them. Raises ArenaError without any."""
    return list_gpus()[number_of(place)]


def number_of(place: str) -> int:
    """Return the number of the GPU of a place; 0 if it tells none."""
    return int(place.partition(":")[2] or 0)


def visible_uuids() -> list[str]:
    """Return the GPUs that this process sees, in its order, as CUDA_VISIBLE_DEVICES may name them."""
    try:
        gpus = list_gpus()
    except ArenaError:
        return []
    return [gpu.uuid.replace("GPU-", "MIG-") if " MIG " in gpu.name else gpu.uuid for gpu in gpus]


def multiplies_bfloat16(gpu: Gpu) -> bool:
    """Return whether a GPU computes with bfloat16 itself."""
    return gpu.capability >= OLDEST_FOR_BFLOAT16


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
