"""Place a request in the queues, by its due time and its work left."""

from typing import NamedTuple

from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import PrefillRequest, Reuse
from unifiedserve.scheduling import Targets


class Work(NamedTuple):
    """Count what is left to do of an attempt, in tokens."""

    prompt: int
    encode: int
    visual: int  # of all of its media


def work_of(active: ActiveRequest, request: PrefillRequest) -> Work:
    """Return the work of an attempt: what is reused is none."""
    units = [plan.unit_tokens(unit) for plan in request.media for unit in range(plan.units)]
    reused = len(request.reuse.prefix.numbers) * (active.contents.page_tokens if active.contents else 0)
    return Work(len(request.token_ids) - reused, _to_encode(units, request.reuse), sum(units))


def place(active: ActiveRequest, ticket: Ticket, work: Work, targets: Targets) -> Ticket:
    """Return the ticket of an attempt. Whose stream has begun owes its next token now."""
    own = 0.0 if active.begun else active.planned.request.slo_ttft
    return targets.ticket(ticket, work.prompt, work.encode, work.visual, own)


def _to_encode(units: list[int], reuse: Reuse) -> int:
    """Return how many of the units' visual tokens must be computed."""
    return sum(tokens for number, tokens in enumerate(units) if not reuse.has(number))
