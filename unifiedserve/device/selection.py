"""Choose the device of an engine once, and its device in each process. Nobody imports CUDA before."""

import logging

from unifiedserve.config import DeviceName, EngineConfig
from unifiedserve.device.base import Device
from unifiedserve.device.cpu import CPU
from unifiedserve.errors import ConfigError

_log = logging.getLogger(__name__)
_OF_GPUS = ("attention_backend", "share", "gpu_threads", "gpu_memory_limits", "gpu_memory_utilization")  # options


def open_device(name: DeviceName, config: EngineConfig) -> Device:
    """Return a device of this machine; nothing of it is taken or started yet."""
    if name == "cuda":
        from unifiedserve.device.cuda import CudaDevice

        return CudaDevice(config)
    return CPU


def files_of(name: DeviceName) -> list[str]:
    """Return the files that users of a device of this machine must write."""
    if name == "cuda":
        from unifiedserve.device.cuda.support import files

        return files()
    return []


def select_device(config: EngineConfig) -> Device:
    """Return the device for `--device`.

    Raises ConfigError if that is "cuda" and there is none that can be used, and for options without effect on a CPU.
    """
    if config.machine.device == "cpu":
        return _cpu(config)
    from unifiedserve.device.cuda.sharing import stay_outside
    from unifiedserve.device.cuda.support import has_gpu, obstacle, used_gpus

    stay_outside()
    reason = obstacle(config)
    if reason is None:
        return open_device("cuda", config).at(used_gpus(config)[0].place)  # others may be full, or not for us
    if config.machine.device == "cuda":
        raise ConfigError(f"--device cuda: {reason}")
    _log.log(logging.WARNING if has_gpu() else logging.INFO, "computing on the CPU: %s", reason)
    return _cpu(config)


def _cpu(config: EngineConfig) -> Device:
    given = [name for name in _OF_GPUS if name in config.given]
    if given:
        options = ", ".join("--" + name.replace("_", "-") for name in given)
        raise ConfigError(f"{options}: means nothing on a CPU, which computes here; leave it out or give --device cuda")
    if config.machine.workers.gpus:
        raise ConfigError(
            f"--placement {config.machine.placement}: names GPUs, but the CPU computes here; name memories (mem1) or "
            "give --device cuda"
        )
    if config.media.decode_on == "gpu":
        raise ConfigError("--decode-on gpu: with --device cpu cores decode; leave it out, or give --device cuda")
    if config.machine.batch_invariant:
        _log.info("--batch-invariant: the CPU computes here, where answers are the same in any batch without it")
    return CPU
