"""Check the machine for what the configuration asks for: cores, memory, speed."""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from importlib import util

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.doctor.system import available_bytes
from unifiedserve.errors import ConfigError
from unifiedserve.memory.shared import EngineLayout
from unifiedserve.placement import Placement, Stage
from unifiedserve.placement.cores import cores_by_node
from unifiedserve.sandbox import missing

_log = logging.getLogger(__name__)

WORKER_MIB = 300  # of its own for each process: interpreter, libraries, activations
_SHM = "/dev/shm"


def check_threads(config: EngineConfig) -> None:
    """Raise ConfigError if a worker has more threads or ranks than cores. That slows it down."""
    for instance in config.machine.workers.instances:
        cores = len(instance.cores) or len(os.sched_getaffinity(0))
        who = f"the worker {instance.name}" if instance.cores else "this process"
        if (ranks := config.machine.ranks_of(instance)) > cores:
            raise ConfigError(f"--tensor-parallel-size {ranks}: {who} may use {cores} cores; ask for {cores} or fewer")
        for option, threads in (
            ("--torch-threads", config.machine.torch_threads),
            ("--vision-threads", config.machine.vision_threads),
        ):
            if threads > cores:
                raise ConfigError(f"{option} {threads}: {who} may use {cores} cores; ask for {cores} or fewer")


def check_memories(config: EngineConfig) -> None:
    """Warn where a memory for each NUMA node is wanted, and there is one node."""
    nodes = cores_by_node(sorted(os.sched_getaffinity(0)))
    if config.machine.memories == "numa" and len(nodes) == 1:
        _log.warning(
            "--memories numa: the cores of this process belong to one NUMA node (node%d), so there is one memory",
            *nodes,
        )


def check_packages(config: EngineConfig) -> None:
    """Raise ConfigError if the video decoder or the carrier between memories is not installed."""
    decoder = config.media.video_decoder
    package = "PyNvVideoCodec" if decoder == "pynvvideocodec" else decoder
    if util.find_spec(package) is None:
        raise ConfigError(f"--video-decoder {decoder} needs the package {package}: pip install {package}")
    if config.machine.carrier == "nixl" and util.find_spec("nixl") is None:
        raise ConfigError("--carrier nixl needs the package nixl: pip install 'unifiedserve[nixl]'")


def check_sandbox(config: EngineConfig, placement: Placement | None = None) -> None:
    """Warn if what reads strangers' data cannot be confined; raise ConfigError if it must be.

    `placement` is what the configured one has become, if it has changed.
    """
    if config.machine.sandbox == "off" or not (reason := _obstacle(placement or config.machine.workers)):
        return
    if config.machine.sandbox == "require":
        raise ConfigError(f"--sandbox require: {reason}")
    _log.warning("%s: what decodes media could reach more than it needs", reason)


def _obstacle(placement: Placement) -> str:
    """Say why what decodes media cannot be confined; empty if it can."""
    hosts = [instance for instance in placement.instances if Stage.VISION in instance.stages]
    if host := next((host for host in hosts if not host.only_decodes_media), None):
        others = " and ".join(stage for stage in host.stages if stage is not Stage.VISION)
        return f"with --placement {placement.name} the worker {host.name} hosts {others} beside vision"
    lacking = missing()
    return f"this kernel cannot confine {' and '.join(lacking)}" if lacking else ""


def shared_sizes(layout: EngineLayout, weights: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the bytes of all shared segments, by what they are; `weights` are those of each rank, by memory."""
    sizes: dict[str, int] = {}
    for memory, uses in layout.segments(weights).items():
        of = f" of {memory}" if len(layout.memories) > 1 else ""
        sizes |= {f"{use}{of}": size for use, size in uses.items() if size}
    return sizes | {"queues": layout.queue_bytes}


def check_memory(shared: Mapping[str, int], workers: int) -> None:
    """Raise ConfigError, with the sum, if segments and workers do not fit in memory.

    The shared segments map name to bytes.
    """
    needed = {name: -(-size // MIB) for name, size in shared.items()}
    _check_room(needed, _free_shared_bytes(), f"{_SHM} has", f"enlarge it (mount -o remount,size=… {_SHM})")
    needed[f"{workers} workers"] = workers * WORKER_MIB
    _check_room(needed, available_bytes(), "the machine has", "free memory")


def check_target(config: EngineConfig, decode_step: float) -> None:
    """Raise ConfigError if streams cannot hold their target. A lone decode step takes so many seconds."""
    least = decode_step * (1 + config.scheduling.rest_between_steps)
    if config.scheduling.seconds_between_tokens(decode_step) < least:
        raise ConfigError(
            f"--slo-tbt {config.scheduling.slo_tbt:g} is too low: a decode step alone takes {decode_step * 1e3:.1f} ms "
            f"here, so {math.ceil(least * 1e3)} is the least; leave the option out, and streams and videos share the "
            "cores about equally"
        )


def _check_room(needed: Mapping[str, int], free_bytes: int, who: str, remedy: str) -> None:
    total, free = sum(needed.values()), free_bytes // MIB
    if total > free:
        parts = " + ".join(f"{name} {mib:,}" for name, mib in needed.items())
        raise ConfigError(
            f"not enough memory: {parts} = {total:,} MiB, but {who} {free:,} MiB free; {remedy}, or ask for smaller "
            "buffers (--kv-cache-mib, --patch-buffer-mib, --visual-buffer-mib, --visual-cache-mib)"
        )


def _free_shared_bytes() -> int:
    """Return the free bytes of shared memory: without a limit it has no blocks, and may take all that there is."""
    stats = os.statvfs(_SHM)
    return stats.f_bavail * stats.f_frsize if stats.f_blocks else available_bytes()
