"""Join tensors of ranks that compute on GPUs, each on its own: by NCCL, through torch.distributed.

NCCL orders what a communicator does on several streams, and what is recorded in CUDA graphs, as it was issued.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ipc_buffers import Collective
from unifiedserve.device.base import Exchanges, Meeting
from unifiedserve.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

_HERE = "127.0.0.1"
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")  # over which ranks find each other: all are on one machine
_PORT_BYTES = 4
_PATIENCE = 40  # times as long may a rank take for a step, which may have to be compiled


def check_backend(backend: str, ranks: int) -> None:
    """Raise ConfigError if torch cannot join so many ranks by a backend."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_backend_available(backend):
        raise ConfigError(f"--tensor-parallel-size {ranks}: torch {torch.__version__} is built without {backend}")


def join(meeting: Meeting, backend: str, device: torch.device) -> Exchanges:
    """Join the ranks of this worker, each of which calls this once. Raises ConfigError if torch lacks the backend."""
    import torch.distributed as dist

    check_backend(backend, meeting.ranks)
    for name in _INTERFACES:
        os.environ.setdefault(name, "lo")
    patience = timedelta(seconds=_PATIENCE * meeting.patience)
    own = device if device.type == "cuda" else None
    dist.init_process_group(
        backend,
        store=_meet(meeting, patience, device),
        rank=meeting.rank,
        world_size=meeting.ranks,
        timeout=patience,
        device_id=own,  # so that NCCL connects the GPUs now
    )
    every = TorchExchange(dist.group.WORLD, range(meeting.ranks), meeting.rank)
    every.all_reduce(torch.zeros(1, device=device))  # what a library loads, it loads before there are requests
    return Exchanges(every, _of_encoder(meeting, lambda ranks: dist.new_group(ranks, timeout=patience)))


class TorchExchange:
    """Wrap a group of torch.distributed as an `Exchange`. On GPUs the host does not wait for the others."""

    def __init__(self, group: Any, ranks: range, rank: int) -> None:
        """Take the group of these `ranks`, to which this one belongs."""
        self._group = group
        self._ranks = ranks
        self._rank = rank

    @property
    def leads(self) -> bool:
        return self._rank == self._ranks.start

    @property
    def native(self) -> NoReturn:
        raise TypeError("sums over ranks of torch.distributed are not for kernels in C++")

    def all_reduce(self, values: Tensor) -> None:
        torch.distributed.all_reduce(values, group=self._group)

    def broadcast(self, values: Tensor) -> None:
        torch.distributed.broadcast(values, self._ranks.start, group=self._group)

    def gather(self, own: Tensor, every: Tensor | None, patience: int = 1) -> None:
        parts = None if every is None else list(every.unbind())
        torch.distributed.gather(own, parts, self._ranks.start, group=self._group)


def _meet(meeting: Meeting, patience: timedelta, device: torch.device) -> Any:
    """Return the store in which ranks find each other: the first one listens, on this machine alone.

    The others come when it has begun to use its GPU, because an MPS server refuses clients while it starts.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    if meeting.rank:
        return TCPStore(_HERE, _told(meeting.collective, 0, patience), meeting.ranks, False, patience)
    torch.zeros(1, device=device)
    listener = socket.create_server((_HERE, 0))
    port = listener.getsockname()[1]
    store = TCPStore(_HERE, port, meeting.ranks, True, patience, False, master_listen_fd=listener.detach())
    _told(meeting.collective, port, patience)
    return store


def _told(collective: Collective, port: int, patience: timedelta) -> int:
    """Return the first rank's port on all ranks."""
    told = bytearray(port.to_bytes(_PORT_BYTES, "little"))
    collective.broadcast(0, told, patience.total_seconds())
    return int.from_bytes(told, "little")


def _of_encoder(meeting: Meeting, new_group: Callable[[list[int]], Any]) -> TorchExchange | None:
    """Return what joins the ranks that share units of the encoder with this one; all ranks make all groups."""
    if (size := meeting.encoder_ranks) == 1:
        return None
    groups = [range(first, first + size) for first in range(0, meeting.ranks, size)]
    made = [new_group(list(ranks)) for ranks in groups]
    number = meeting.rank // size
    return TorchExchange(made[number], groups[number], meeting.rank)
