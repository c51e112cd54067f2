"""Join tensors of ranks that compute on the host, through its shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ipc_buffers import AllReduce, Collective

if TYPE_CHECKING:
    from torch import Tensor


class HostExchange:
    """Wrap one rank's end of a `Collective` as an `Exchange`."""

    def __init__(self, collective: Collective, patience: float) -> None:
        """Wait so many seconds for other ranks."""
        self._collective = collective
        self._patience = patience

    @property
    def leads(self) -> bool:
        return self._collective.rank == 0

    @property
    def native(self) -> AllReduce:
        return self._collective

    def all_reduce(self, values: Tensor) -> None:
        self._collective.all_reduce(_memory(values), str(values.dtype).removeprefix("torch."), self._patience)

    def broadcast(self, values: Tensor) -> None:
        self._collective.broadcast(0, _memory(values), self._patience)

    def gather(self, own: Tensor, every: Tensor | None, patience: int = 1) -> None:
        room = None if every is None else _memory(every)
        self._collective.gather(0, _memory(own), room, self._patience * patience)


def _memory(values: Tensor) -> memoryview:
    return values.view(-1).view(torch.uint8).numpy().data
