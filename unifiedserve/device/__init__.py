"""What computes: a package a kind of device, and what all of them share.

`base.py` is what the engine asks of a device. `cpu/` and `cuda/` answer; a third one would be a folder beside them, and
a name in `open_device` and `config.DeviceName`.
"""

from unifiedserve.config import DeviceName, EngineConfig
from unifiedserve.device.base import Device, Room

__all__ = ["Device", "Room", "files_of", "open_device"]


def open_device(name: DeviceName, config: EngineConfig) -> Device:
    """Return a device of this machine; nothing of it is taken or started yet."""
    if name == "cuda":
        from unifiedserve.device.cuda import CudaDevice

        return CudaDevice(config)
    from unifiedserve.device.cpu import CPU

    return CPU


def files_of(name: DeviceName) -> list[str]:
    """Return the files that a process must be able to write which uses a device of this machine."""
    if name == "cuda":
        from unifiedserve.device.cuda.support import files

        return files()
    return []
