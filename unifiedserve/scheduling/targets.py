"""Estimate when a request's first token is due, and how much work it is."""

import msgspec

from unifiedserve.config import EngineConfig
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.ticket import Ticket

_FACTOR = 5.0  # times what a request takes alone, where nobody gives a target
_LEAST = 0.5  # seconds; nobody notices less


class Targets:
    """Give requests their places in the queues, by the costs of work lately (`costs`)."""

    def __init__(self, config: EngineConfig) -> None:
        self._base = config.scheduling.slo_ttft / 1000
        self._visual = config.scheduling.slo_ttft_visual / 1000
        self.costs = Costs()

    def learn(self, costs: Costs) -> None:
        """Take what a worker has measured."""
        self.costs = self.costs.learned(costs)

    def ticket(
        self, ticket: Ticket, prompt_tokens: int, encode_tokens: int, visual_tokens: int, own: float | None = None
    ) -> Ticket:
        """Return the place of a request with so many tokens to prefill and to encode.

        Its first token is owed within its `own` seconds, the daemon's for all of its visual tokens, or by its work.
        """
        work = self.costs.alone(prompt_tokens, encode_tokens)
        due = ticket.arrival + self._seconds(own, visual_tokens, work)
        return msgspec.structs.replace(ticket, due=due, work=work)

    def _seconds(self, own: float | None, visual_tokens: int, work: float) -> float:
        if own is not None:
            return own
        if self._base:
            return self._base + self._visual * visual_tokens
        return max(_LEAST, _FACTOR * work)
