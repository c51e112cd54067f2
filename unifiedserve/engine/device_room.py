"""How much of a device's own memory the engine may take, and what is left of it for the KV cache."""

from collections.abc import Mapping

from unifiedserve.config import MIB, EngineConfig
from unifiedserve.device import Room
from unifiedserve.engine.rehearsal import Footprint
from unifiedserve.errors import ConfigError
from unifiedserve.memory.shared import EngineLayout
from unifiedserve.placement import Placement, Stage

_SHARED = {"weights", "KV cache"}  # what only another model, dtype or context makes smaller


class RoomError(ConfigError):
    """What is asked for does not fit into a device's memory."""


def workers_bytes(placement: Placement, footprint: Footprint) -> dict[str, int]:
    """Return what each worker of a placement takes of it, by name."""
    return {
        instance.name: footprint.idle if instance.only_decodes_media else footprint.busy
        for instance in placement.instances
    }


def unseen_bytes(placement: Placement, decode: int, videos: int) -> dict[str, int]:
    """Return what workers take beside that, by use: what decode and what decoders of videos take in one of them."""
    stages = [stage for instance in placement.instances for stage in instance.stages]
    found = {
        "scratch of decode": decode * stages.count(Stage.DECODE),
        "decoders of videos": videos * stages.count(Stage.VISION),
    }
    return {use: size for use, size in found.items() if size}


def check_role(started: Placement, changed: Placement) -> None:
    """Raise ConfigError if a change needs memory of a device beside what was set aside when the engine started."""
    before, after = _takers(started), _takers(changed)
    more = next((what for what, count in after.items() if count > before[what]), None)
    if more is not None:
        raise ConfigError(
            f"the GPU's memory was divided at the start among {before[more]} workers that {more}: start with more"
        )


def _takers(placement: Placement) -> dict[str, int]:
    """Count the workers that take memory of their own, by what they take it for."""
    stages = [stage for instance in placement.instances for stage in instance.stages]
    return {
        "compute": sum(not instance.only_decodes_media for instance in placement.instances),
        "decode tokens": stages.count(Stage.DECODE),
        "decode media": stages.count(Stage.VISION),
    }


def describe(room: Room, layout: EngineLayout, workers: Mapping[str, int], tokens: int) -> str:
    """Say in a line what the memory is used for; `workers` is what they take, by use."""
    parts = {"KV cache": layout.only.kv.bytes, **layout.only.buffers(), **workers}
    sizes = ", ".join(f"{name} {size // MIB:,} MiB" for name, size in parts.items())
    return f"{room.name}: {sizes}; the KV cache holds {tokens:,} tokens"


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
