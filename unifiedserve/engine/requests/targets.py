"""By when a request's first token is owed, and how much work it is."""

import msgspec

from unifiedserve.config import EngineConfig
from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.messages.costs import Costs
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import PrefillRequest, Reuse

_FACTOR = 5.0  # times what a request takes alone, where nobody gives a target
_LEAST = 0.5  # seconds; nobody notices less


class Targets:
    """Gives requests their places in the queues, by what work has cost lately."""

    def __init__(self, config: EngineConfig) -> None:
        self._base = config.slo_ttft / 1000
        self._visual = config.slo_ttft_visual / 1000
        self._page_tokens = config.kv_page_tokens
        self._costs = Costs()

    def learn(self, costs: Costs) -> None:
        """Take what a worker has measured; what it does not know (0) stays as it is."""
        known = {name: value for name, value in msgspec.structs.asdict(costs).items() if value}
        self._costs = msgspec.structs.replace(self._costs, **known)

    def ticket(self, active: ActiveRequest, request: PrefillRequest) -> Ticket:
        """Return the place of an attempt. What is reused is no work; whose stream has begun owes its next token now."""
        units = [plan.unit_tokens(unit) for plan in request.media for unit in range(plan.units)]
        reused = len(request.reuse.prefix.numbers) * self._page_tokens
        work = self._costs.alone(len(request.token_ids) - reused, _to_encode(units, request.reuse))
        target = 0.0 if active.begun else self._target(active.planned.request.slo_ttft, sum(units), work)
        return Ticket(request.ticket.uid, active.arrival, request.ticket.priority, active.arrival + target, work)

    def _target(self, own: float | None, visual_tokens: int, work: float) -> float:
        """Return the seconds to the first token: the request's own, the daemon's, or by what it takes alone."""
        if own is not None:
            return own
        if self._base:
            return self._base + self._visual * visual_tokens
        return max(_LEAST, _FACTOR * work)


def _to_encode(units: list[int], reuse: Reuse) -> int:
    """Return how many of the units' visual tokens must be computed."""
    return sum(tokens for number, tokens in enumerate(units) if number >= reuse.covered and number not in reuse.units)
