"""Join the ranks of an instance: queues for rank 0's orders, and what combines their tensors."""

from collections.abc import Sequence

from ipc_buffers import Collective, MessageQueue
from unifiedserve.device import Exchange, Exchanges
from unifiedserve.ranks.messages import Message, pack, unpack
from unifiedserve.ranks.parts import RankPart


class Group:
    """Hold one rank's end.

    Operations raise CollectiveError, which names a rank, if that does not come in time.
    """

    def __init__(
        self,
        part: RankPart,
        collective: Collective,
        exchanges: Exchanges,
        inboxes: Sequence[MessageQueue],
        patience: float = 60.0,
    ) -> None:
        """Take the inboxes of all ranks but the first.

        The host waits for all by a `collective`. `patience` are the seconds that ranks wait for each other.
        """
        self.part = part
        self.exchange: Exchange = exchanges.every
        #: joins the ranks that share units of the encoder; None if one rank has each
        self.exchange_of_encoder = exchanges.encoder
        self._collective = collective
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

    def meet(self, seconds: float | None = None, patience: int = 1) -> None:
        """Wait until all ranks are there.

        It waits for `seconds`, or `patience` times as long as other operations.
        """
        self._collective.barrier(patience * self._patience if seconds is None else seconds)
