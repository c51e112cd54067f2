"""A request's place in the queues: what it owes, and how much work is left once the caches gave what they have."""

from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import PrefillRequest, Reuse
from unifiedserve.scheduling import Targets


def place(active: ActiveRequest, request: PrefillRequest, targets: Targets) -> Ticket:
    """Return the ticket of an attempt. What is reused is no work; whose stream has begun owes its next token now."""
    units = [plan.unit_tokens(unit) for plan in request.media for unit in range(plan.units)]
    reused = len(request.reuse.prefix.numbers) * (active.contents.page_tokens if active.contents else 0)
    own = 0.0 if active.begun else active.planned.request.slo_ttft
    prompt_tokens, encode_tokens = len(request.token_ids) - reused, _to_encode(units, request.reuse)
    return targets.ticket(request.ticket, prompt_tokens, encode_tokens, sum(units), own)


def _to_encode(units: list[int], reuse: Reuse) -> int:
    """Return how many of the units' visual tokens must be computed."""
    return sum(tokens for number, tokens in enumerate(units) if number >= reuse.covered and number not in reuse.units)
