"""Join the ranks of an instance: queues for rank 0's orders, and collective operations."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ipc_buffers import Collective, MessageQueue
from unifiedserve.ranks.messages import Message, pack, unpack
from unifiedserve.ranks.parts import RankPart


class Group:
    """Hold one rank's end.

    Every operation raises CollectiveError, which names a rank, if that does not come in time.
    """

    def __init__(
        self,
        part: RankPart,
        collective: Collective,
        inboxes: Sequence[MessageQueue],
        patience: float = 60.0,
        encoder: Collective | None = None,
    ) -> None:
        """Take the inboxes of all ranks but the first.

        `encoder` joins the ranks that share units of the encoder, if several do. `patience` are the seconds that ranks
        wait for each other.
        """
        self.part = part
        self.collective = collective
        self._encoder = encoder
        self._inboxes = inboxes
        self._patience = patience

    @property
    def leads(self) -> bool:
        """Tell whether this is rank 0, which tells the others what to do."""
        return self.part.rank == 0

    def tell(self, message: Message) -> None:
        """Send to all other ranks. Raises TimeoutError if one does not read, MessageTooLarge."""
        data = pack(message)
        for inbox in self._inboxes:
            inbox.send(data, self._patience)

    def hear(self) -> Message:
        """Wait for what rank 0 tells."""
        data = self._inboxes[self.part.rank - 1].receive()
        assert data is not None  # there is no timeout
        return unpack(data)

    def all_reduce(self, values: Tensor) -> None:
        """Replace contiguous values by the sums over all ranks."""
        self.collective.all_reduce(_memory(values), str(values.dtype).removeprefix("torch."), self._patience)

    def sum_of_encoder(self, values: Tensor) -> None:
        """Replace contiguous values by the sums over the ranks that share the encoder's units."""
        assert self._encoder is not None  # else one rank has each unit
        self._encoder.all_reduce(_memory(values), str(values.dtype).removeprefix("torch."), self._patience)

    def broadcast(self, values: Tensor) -> None:
        """Replace contiguous values by those of rank 0."""
        self.collective.broadcast(0, _memory(values), self._patience)

    def gather(self, own: Tensor, every: Tensor | None, patience: int = 1) -> None:
        """Fill `every` [ranks, …] of rank 0 with the `own` […] of each; the others give None.

        A rank may come `patience` times as late as otherwise.
        """
        room = None if every is None else _memory(every)
        self.collective.gather(0, _memory(own), room, self._patience * patience)

    def meet(self, seconds: float | None = None) -> None:
        """Wait until all ranks are there, for `seconds` or as long as in other operations."""
        self.collective.barrier(self._patience if seconds is None else seconds)


def _memory(values: Tensor) -> memoryview:
    return values.view(-1).view(torch.uint8).numpy().data
