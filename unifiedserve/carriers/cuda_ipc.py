"""Pages between GPUs of one machine: the other's memory is opened by CUDA IPC, and copied from on a stream."""

from ipc_buffers import Bell
from unifiedserve.carriers.mapped import MappedCarrier
from unifiedserve.carriers.setting import Setting


class CudaIpcCarrier(MappedCarrier):
    """Copies between pools on GPUs, on a stream of the reader's; an event behind the copies is the fence.

    The source must have fenced its own work before it offered the pages. No GPU has run it yet.
    """

    def __init__(self, setting: Setting, bell: Bell) -> None:
        super().__init__("cuda_ipc", setting, bell, on_gpu=True)
