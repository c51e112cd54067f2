"""Who goes on with the answers of an instance that is to decode no more: pages stay, only the message travels."""

from collections.abc import Iterator, Sequence
from itertools import cycle

import msgspec

from unifiedserve.messages.wire import HandedOver
from unifiedserve.worker.language.sender import Sender
from unifiedserve.worker.language.sequence import Sequence as Answer
from unifiedserve.worker.outbox import Outbox


class Heirs:
    """Other hosts of decode in the same memory. As long as none are named, the instance decodes itself."""

    def __init__(self, sender: Sender, outbox: Outbox) -> None:
        self._sender = sender
        self._outbox = outbox
        self._hosts: Iterator[str] | None = None

    def __bool__(self) -> bool:
        """Tell whether answers are to be handed over."""
        return self._hosts is not None

    def name(self, hosts: Sequence[str]) -> None:
        """Share out the answers among these hosts from now on."""
        self._hosts = cycle(hosts)

    def take(self, answer: Answer) -> None:
        """Hand over an answer and what it holds; those of one request go to one host. Raises TypeError without any."""
        if self._hosts is None:
            raise TypeError("there are no heirs")
        uid = answer.ticket.uid
        host = self._outbox.heir(uid) or next(self._hosts)
        answer.ticket = msgspec.structs.replace(answer.ticket, route=answer.ticket.route.decoded_by(host))
        self._sender.send_answers([answer])
        self._outbox.hand_over(uid, host)
        self._outbox.to_engine(HandedOver(uid, answer.index, host))
