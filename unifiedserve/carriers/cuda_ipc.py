"""Carry pages between GPUs of one machine. CUDA IPC opens the other's memory, and a stream copies from it."""

from ipc_buffers import Bell
from unifiedserve.carriers.mapped import MappedCarrier
from unifiedserve.carriers.setting import Setting


class CudaIpcCarrier(MappedCarrier):
    """Copy between pools on GPUs, on a stream of the reader's. An event behind the copies is the fence.

    The source must have fenced its own work before it offered the pages. No GPU has run it yet.
    """

    def __init__(self, setting: Setting, bell: Bell) -> None:
        super().__init__("cuda_ipc", setting, bell, on_gpu=True)
