"""Run the processor as a device: everything is done when a call returns."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ipc_buffers import Memory
from unifiedserve.config import DeviceName
from unifiedserve.device.base import (
    Device,
    Exchanges,
    Kernels,
    Meeting,
    Sharing,
    SideQueue,
)
from unifiedserve.device.cpu.exchange import HostExchange
from unifiedserve.device.cpu.processor import KERNEL_DTYPES, cpu_features, slowness
from unifiedserve.device.cpu.sharing import NiceSharing
from unifiedserve.device.cpu.side_thread import SideThread
from unifiedserve.device.llama import is_llama_like

if TYPE_CHECKING:
    from torch import Tensor


class CpuDevice:
    name: DeviceName = "cpu"
    place = "host"
    frames = "cpu"
    synchronous = True
    apart = False
    sharing: Sharing = NiceSharing()

    @property
    def torch(self) -> torch.device:
        """Return what torch calls it."""
        return torch.device("cpu")

    @cached_property
    def kernels(self) -> Kernels:
        """Return what workers compute by. No other process needs its modules."""
        from unifiedserve.device.cpu.kernels import CpuKernels

        return CpuKernels()

    def place_of(self, gpu: int) -> str:
        """Return its place: all memories are in the host's."""
        return self.place

    def at(self, place: str) -> Device:
        """Return itself: there is no other one."""
        return self

    def seen_as(self, place: str, own: str) -> str:
        """Return the place: there is no other one."""
        return place

    def best_dtype(self) -> str:
        """Return bfloat16 where the processor multiplies it, which takes half the memory traffic; float32 elsewhere."""
        return "bfloat16" if cpu_features() & {"avx512_bf16", "amx_bf16"} else "float32"

    def check(self, dtype: str) -> None:
        """Do nothing: torch computes with all of them."""

    def verify(self) -> None:
        """Do nothing: nobody limits a part of it."""

    def room(self) -> None:
        """Return None: its memory is the host's."""

    def decode_bytes(self, text: Any, rows: int, tokens: int, page_size: int) -> int:
        """Return 0: it has no memory of its own."""
        return 0

    def video_bytes(self) -> int:
        """Return 0: it has no memory of its own."""
        return 0

    def slowness(self) -> str | None:
        return slowness()

    def panels(self, dtype: str) -> bool:
        """Tell whether the kernels know the dtype: they read matrices in panels."""
        return dtype in KERNEL_DTYPES

    def divides(self, text: Any, dtype: str) -> bool:
        """Tell whether kernels run a text config's layers, and can sum up their parts."""
        return self.panels(dtype) and is_llama_like(text)

    def place_of_rank(self, place: str, rank: int) -> str:
        """Return the same place: all ranks' parts are in the host's memory."""
        return place

    def exchanges(self, meeting: Meeting) -> Exchanges:
        encoder = HostExchange(meeting.encoder, meeting.patience) if meeting.encoder else None
        return Exchanges(HostExchange(meeting.collective, meeting.patience), encoder)

    def view(self, memory: Memory) -> Tensor:
        return torch.utils.dlpack.from_dlpack(memory)

    def side_queue(self) -> SideQueue:
        """Return a thread that computes beside the caller.

        It takes half of the calling thread's threads while it has work.
        """
        return SideThread()

    def upload(self, host: Tensor) -> Tensor:
        """Return the very tensor: it is there."""
        return host

    def adopt(self, frames: Any) -> Tensor:
        """Return the frames as they are."""
        return torch.utils.dlpack.from_dlpack(frames)

    def fence(self) -> None:
        """Return at once."""


CPU = CpuDevice()
