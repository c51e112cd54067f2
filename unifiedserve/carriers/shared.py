"""Carry pages between memories of one machine's host: the other one is mapped, and copied from."""

from ipc_buffers import Bell
from unifiedserve.carriers.mapped import MappedCarrier
from unifiedserve.carriers.setting import Setting


class SharedCarrier(MappedCarrier):
    """Copy between pools in host memory. The source has no server, and may be dead or stopped."""

    def __init__(self, setting: Setting, bell: Bell) -> None:
        super().__init__("shared", setting, bell, on_gpu=False)
