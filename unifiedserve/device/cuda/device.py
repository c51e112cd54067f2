"""Run a GPU as a device. Its memory is shared by CUDA IPC (`ipc_buffers`); torch is asked in workers only."""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ipc_buffers import Memory, free_bytes
from unifiedserve.config import AttentionBackend, DeviceName, EngineConfig
from unifiedserve.device.base import Exchanges, Kernels, Meeting, Room, Sharing, SideQueue
from unifiedserve.device.cuda.backends import attention_backend, check_attention_backend
from unifiedserve.device.cuda.exchange import check_backend, join
from unifiedserve.device.cuda.products import check_products
from unifiedserve.device.cuda.sharing import Mps, TimeSlices, seen_as
from unifiedserve.device.cuda.side_stream import NORMAL, CudaStream
from unifiedserve.device.cuda.support import DTYPES, gpu_of, multiplies_bfloat16, number_of, used_gpus
from unifiedserve.device.cuda.unseen import decode_bytes, decoders_bytes, nvdec_units
from unifiedserve.device.llama import is_llama_like
from unifiedserve.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


class CudaDevice:
    """Run a GPU that this process sees.

    In a worker the first one is its own, in the engine the first of those that it uses.
    """

    name: DeviceName = "cuda"
    synchronous = False
    apart = True

    def __init__(self, config: EngineConfig, place: str = "cuda:0") -> None:
        self._config = config
        self.place = self.frames = place
        self._attention: AttentionBackend = config.machine.attention_backend
        self._batch_invariant = config.machine.batch_invariant
        self._coded_cache = config.memory.kv_cache_dtype == "int8"
        self._decodes_videos = config.media.video_decoder == "flashcodec" and config.media.decode_on != "cpu"
        self._video_threads = config.machine.vision_threads
        self.sharing: Sharing = TimeSlices() if config.machine.share == "none" else Mps(config)

    @cached_property
    def torch(self) -> torch.device:
        """Return what torch calls it."""
        return torch.device(self.place)

    @cached_property
    def kernels(self) -> Kernels:
        from unifiedserve.device.cuda.kernels import CudaKernels
        from unifiedserve.device.triton.linear import linear
        from unifiedserve.device.triton.operators import TritonPointwise

        importlib.import_module("torch._native")  # some of torch's kernels, which models/deferred_torch.py leaves out
        torch.backends.cuda.enable_cudnn_sdp(False)  # it would build a graph for every size of picture that is new
        # flash attention may split keys by how many sequences there are
        torch.backends.cuda.enable_flash_sdp(not self._batch_invariant)
        attention = attention_backend(self._attention, self, batch_invariant=self._batch_invariant)
        return CudaKernels(
            self,
            attention,
            TritonPointwise(),
            linear if self._batch_invariant else torch.nn.functional.linear,
            lambda: CudaStream(self.torch),
            batch_invariant=self._batch_invariant,
        )

    def place_of(self, gpu: int) -> str:
        return f"cuda:{gpu}"

    def at(self, place: str) -> CudaDevice:
        if place == self.place:
            return self
        other = CudaDevice(self._config, place)
        other.sharing = self.sharing  # an engine has one daemon for all GPUs
        return other

    def seen_as(self, place: str, own: str) -> str:
        return seen_as(place, own)

    def best_dtype(self) -> str:
        """Return bfloat16 if all GPUs of the engine compute with it."""
        return "bfloat16" if all(map(multiplies_bfloat16, used_gpus(self._config))) else "float32"

    def check(self, dtype: str) -> None:
        if self._coded_cache:
            raise ConfigError(
                "--kv-cache-dtype int8: only the CPU's kernels read codes for now; with --device cuda leave it out"
            )
        check_attention_backend(self._attention, self._batch_invariant)
        for gpu in used_gpus(self._config):
            if dtype == "bfloat16" and not multiplies_bfloat16(gpu):
                raise ConfigError(f"--dtype bfloat16: {gpu.name} does not compute with it; use --dtype float32")
        if (ranks := self._config.machine.tensor_parallel_size) > 1:
            check_backend("nccl", ranks)
            if self._batch_invariant:
                raise ConfigError(
                    f"--batch-invariant: NCCL's order of sums over --tensor-parallel-size {ranks} may depend on the "
                    "batch; leave one of them out"
                )

    def verify(self) -> None:
        """Multiply, since limits on a GPU's threads have been seen to make products wrong."""
        check_products(self.torch)

    def room(self) -> Room:
        gpu = gpu_of(self.place)
        return Room(gpu.name, gpu.total_bytes, free_bytes(gpu.place))

    def panels(self, dtype: str) -> bool:
        """Return False: its libraries read matrices row by row."""
        return False

    def divides(self, text: Any, dtype: str) -> bool:
        """Tell whether kernels run a text config's layers; NCCL sums up their parts, one on each GPU."""
        return dtype in DTYPES and is_llama_like(text)

    def place_of_rank(self, place: str, rank: int) -> str:
        """Return the place of the rank's own GPU: those of a worker's ranks have consecutive numbers."""
        return self.place_of(number_of(place) + rank)

    def exchanges(self, meeting: Meeting) -> Exchanges:
        return join(meeting, "nccl", self.torch)

    def decode_bytes(self, text: Any, rows: int, tokens: int, page_size: int) -> int:
        return decode_bytes(text, rows, tokens, page_size)

    def video_bytes(self) -> int:
        return decoders_bytes(nvdec_units(number_of(self.place)), self._video_threads) if self._decodes_videos else 0

    def slowness(self) -> str | None:
        """Return None: it is as fast as it is."""
        return None

    def view(self, memory: Memory) -> Tensor:
        return torch.utils.dlpack.from_dlpack(memory)

    def side_queue(self) -> SideQueue:
        return CudaStream(self.torch, NORMAL)

    def upload(self, host: Tensor) -> Tensor:
        """Copy from another GPU, or through page-locked memory. Torch keeps that until the copy is made."""
        return (host if host.is_cuda else host.pin_memory()).to(self.torch, non_blocking=True)

    def adopt(self, frames: Any) -> Tensor:
        return torch.utils.dlpack.from_dlpack(frames)

    def fence(self) -> None:
        torch.cuda.current_stream(self.torch).synchronize()
