"""Divide a device's own memory: the engine's part, and the rest for the KV cache."""

from collections.abc import Mapping, Sequence

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.device import Room
from unifiedserve.engine.rehearsal import Footprint
from unifiedserve.errors import ConfigError
from unifiedserve.memory.shared import EngineLayout
from unifiedserve.placement import Instance, Placement, Stage

_SHARED = {"weights", "KV cache"}  # what only another model, dtype or context makes smaller


class RoomError(ConfigError):
    """Signal that what is asked for does not fit into a device's memory."""


def workers_bytes(placement: Placement, own: EngineLayout, footprints: Mapping[str, Footprint]) -> dict[str, int]:
    """Return what workers take of a device that has these memories, by name; workers of other devices as one.

    `footprints` has what a worker of the model takes in each memory with weights.
    """
    idle = max(footprint.idle for footprint in footprints.values())
    found = {
        instance.name: idle if instance.only_decodes_media else footprints[instance.memory].busy
        for instance in placement.instances
        if instance.memory in own.memories
    }
    visitors = len(_visitors(placement, own))
    return {**found, "workers of other GPUs": visitors * idle} if visitors else found


def unseen_bytes(placement: Placement, own: EngineLayout, decode: Mapping[str, int], videos: int) -> dict[str, int]:
    """Return what workers take of a device beside that, by use.

    `decode` is what it takes in one of them, by memory, and `videos` what decoders of videos take in one of them.
    """
    here = [instance for instance in placement.instances if instance.memory in own.memories]
    decoders = [each for each in [*here, *_visitors(placement, own)] if Stage.VISION in each.stages]
    found = {
        "scratch of decode": sum(decode.get(each.memory, 0) for each in here if Stage.DECODE in each.stages),
        "decoders of videos": videos * len(decoders),
    }
    return {use: size for use, size in found.items() if size}


def _visitors(placement: Placement, own: EngineLayout) -> list[Instance]:
    """Return the workers of other devices that open memories of this one: vision writes there, and others pull."""
    pools = {pool for memory in own.memories.values() for pool in memory.pools}
    opened = {Stage.VISION: "patch", Stage.PREFILL: "visual", Stage.DECODE: "kv"}
    others = [instance for instance in placement.instances if instance.memory not in own.memories]
    return [each for each in others if pools & {opened[stage] for stage in each.stages if stage in opened}]


def check_role(started: Placement, changed: Placement, memory: str) -> None:
    """Raise ConfigError if a role change needs more of a device than was set aside."""
    before, after = _takers(started, memory), _takers(changed, memory)
    more = next((what for what, count in after.items() if count > before[what]), None)
    if more is not None:
        raise ConfigError(
            f"the GPU's memory was divided at the start among {before[more]} workers that {more}: start with more"
        )


def _takers(placement: Placement, memory: str) -> dict[str, int]:
    """Count the workers of a memory that take some of its device, by purpose."""
    here = [instance for instance in placement.instances if instance.memory == memory]
    stages = [stage for instance in here for stage in instance.stages]
    return {
        "compute": sum(not instance.only_decodes_media for instance in here),
        "decode tokens": stages.count(Stage.DECODE),
        "decode media": stages.count(Stage.VISION),
    }


def describe(room: Room, own: EngineLayout, workers: Mapping[str, int], tokens: Sequence[int]) -> str:
    """Say in a line what a device's memory is used for; `workers` is what they take, by use.

    `tokens` are those that each KV cache holds.
    """
    parts = {"KV cache": own.kv_bytes, **own.buffers(), **workers}
    sizes = ", ".join(f"{name} {size // MIB:,} MiB" for name, size in parts.items() if size)
    held = " and ".join(f"{each:,}" for each in tokens)
    return f"{room.name}: {sizes}" + (f"; the KV cache holds {held} tokens" if tokens else "")


def spare_bytes(room: Room, config: EngineConfig) -> int:
    """Return what may still be taken, all programs' use counted; below 0 if that is too much already."""
    return int(room.total * config.memory.gpu_memory_utilization) - (room.total - room.free)


def check_room(room: Room, config: EngineConfig, needed: Mapping[str, int]) -> int:
    """Return the bytes that are left beside `needed` (name to bytes).

    Raises RoomError, with the sum and what would fit, if nothing is.
    """
    spare = spare_bytes(room, config)
    left = spare - sum(needed.values())
    if left <= 0:
        parts = " + ".join(f"{name} {-(-size // MIB):,}" for name, size in needed.items())
        raise RoomError(
            f"{room.name} has too little memory: {parts} = {-(-sum(needed.values()) // MIB):,} MiB, but of its "
            f"{room.total // MIB:,} MiB {room.free // MIB:,} are free, and --gpu-memory-utilization "
            f"{config.memory.gpu_memory_utilization:g} leaves {max(0, spare) // MIB:,}; {_advice(needed, spare)}"
        )
    return left


def check_context(room: Room, config: EngineConfig, tokens: int) -> None:
    """Raise RoomError if the KV cache holds fewer `tokens` than --max-model-len asks for."""
    if tokens < config.checkpoint.max_model_len:
        raise RoomError(
            f"{room.name} has too little memory for --max-model-len {config.checkpoint.max_model_len}: beside the "
            f"model its KV cache holds {tokens:,} tokens; ask for that or less, or raise --gpu-memory-utilization"
        )


def _advice(needed: Mapping[str, int], spare: int) -> str:
    buffers = sum(size for name, size in needed.items() if name not in _SHARED)
    if needed.get("weights", 0) + buffers // 8 > spare:
        most = max(0, spare - buffers)
        return f"a model of up to {most // MIB:,} MiB would fit: take a smaller one, --dtype bfloat16 or a larger GPU"
    return "ask for smaller buffers (--kv-cache-mib, --patch-buffer-mib, --visual-buffer-mib, --visual-cache-mib)"
