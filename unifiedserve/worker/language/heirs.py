"""Find hosts that decode in place of one about to leave: pages stay, only messages travel."""

from itertools import cycle

import msgspec

from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import HandedOver, HandOver
from unifiedserve.worker.language.sender import Sender
from unifiedserve.worker.language.sequence import Sequence
from unifiedserve.worker.language.staged_prompt import StagedPrompt
from unifiedserve.worker.outbox import Outbox


class Heirs:
    """Share out what an instance was to decode among other hosts of its memory. It goes request by request."""

    def __init__(self, message: HandOver, sender: Sender, outbox: Outbox) -> None:
        self._leaving = message.instance
        self._hosts = cycle(message.hosts)
        self._sender = sender
        self._outbox = outbox

    def reroute(self, prompt: StagedPrompt) -> None:
        """Send the answers of a prompt to another host when it is prefilled. This holds if they were to stay here.

        Where the one that leaves reads pages of it already, that hands the answers over itself.
        """
        request, leaves = prompt.request, prompt.ticket.route.decode == self._leaving
        if leaves and prompt.shape.prefills_here and not self._sender.has_offered(prompt.uid):
            request.ticket = self._rerouted(request.ticket)
            for index in request.indices:
                self._tell(request.ticket, index)

    def take(self, sequence: Sequence) -> None:
        """Hand an answer over, with what it holds."""
        sequence.ticket = self._rerouted(sequence.ticket)
        self._sender.send_answers([sequence])
        self._tell(sequence.ticket, sequence.index)  # behind it: an abort may now go to the new host at once

    def _rerouted(self, ticket: Ticket) -> Ticket:
        host = self._outbox.heir(ticket.uid) or next(self._hosts)
        self._outbox.hand_over(ticket.uid, host)
        return msgspec.structs.replace(ticket, route=ticket.route.decoded_by(host))

    def _tell(self, ticket: Ticket, index: int) -> None:
        self._outbox.to_engine(HandedOver(ticket.uid, index, ticket.route.decode))
