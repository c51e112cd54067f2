"""Find the measurements of `unifiedserve profile` for a model on its device."""

from pathlib import Path

from unifiedserve.config import EngineConfig
from unifiedserve.device import Device
from unifiedserve.errors import ConfigError
from unifiedserve.profiles import HardwareProfile, hardware_name, stored_profile, versions_here
from unifiedserve.profiles.digest import model_digest


def known_profile(config: EngineConfig, model_dir: Path, dtype: str, device: Device) -> HardwareProfile | None:
    """Return the profile of these versions, or None; the log says why one that there is does not count."""
    room = device.room()
    hardware, versions = hardware_name(room.name if room else None), versions_here(gpu=room is not None)
    return stored_profile(digest_of(config, model_dir, dtype), hardware, versions)


def digest_of(config: EngineConfig, model_dir: Path, dtype: str) -> str:
    """Return what tells this model, as it is loaded, from others. Raises ConfigError without its config.json."""
    machine, how = config.machine, [dtype, config.memory.kv_dtype(dtype), config.checkpoint.quantization]
    if config.checkpoint.vision_quantization != "none":
        how.append(f"vision {config.checkpoint.vision_quantization}")
    if machine.tensor_parallel_size > 1:
        how.append(f"{machine.tensor_parallel_size} ranks")
    if machine.encoder_ranks:
        how.append(f"encoder {machine.encoder_ranks}")
    if machine.batch_invariant:
        how.append("batch invariant")
    try:
        return model_digest(model_dir, *how)
    except OSError as error:
        raise ConfigError(f"{model_dir}: {error.strerror}") from error
