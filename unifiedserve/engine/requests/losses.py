"""Select the attempts that end with a worker, and those that go on without it."""

from collections.abc import Iterator

from unifiedserve.engine.requests.table import Attempt, RequestTable
from unifiedserve.placement import Placement, Route, Stage

_BEFORE_DECODE = (Stage.VISION, Stage.ENCODE, Stage.PREFILL)


def ended_with(name: str, table: RequestTable, placement: Placement) -> Iterator[int]:
    """Yield the attempts (uids) that something is lost of with the worker of this instance.

    Those go on that it has served already, as tokens from later stages show, and those that it was yet to decode.
    Attempts that are only to be drained end: nobody knows whether an abort came through.
    """
    for uid, attempt in table.attempts():
        route = attempt.route
        before = any(name in route.hosts(stage) for stage in _BEFORE_DECODE)
        decodes = route.decode == name
        if _is_drained(uid, attempt):
            lost = before or decodes
        else:
            lost = (before and not has_left(attempt, placement)) or (decodes and attempt.new_tokens > 0)
        if lost:
            yield uid


def called_back(name: str, table: RequestTable) -> Iterator[int]:
    """Yield the attempts that an instance has a part in, and only drains."""
    for uid, attempt in table.attempts():
        if _is_drained(uid, attempt) and any(name in attempt.route.hosts(stage) for stage in Stage):
            yield uid


def handed_over(giver: str, decode: str, table: RequestTable) -> Iterator[int]:
    """Yield the attempts that one instance handed to another to decode, by their tokens."""
    for uid, attempt in table.attempts():
        if (attempt.giver, attempt.route.decode) == (giver, decode) and attempt.new_tokens > 0:
            yield uid


def still_to_come(name: str, table: RequestTable) -> Iterator[int]:
    """Yield the attempts that an instance is yet to decode; it may have read pages of theirs early."""
    for uid, attempt in table.attempts():
        if attempt.route.decode == name and not attempt.new_tokens:
            yield uid


def past_windows(name: str, table: RequestTable) -> Iterator[int]:
    """Yield the attempts in decode that had a media window at an instance of vision."""
    for uid, attempt in table.attempts():
        if attempt.route.vision == name and attempt.request.planned.window and attempt.new_tokens:
            yield uid


def left_behind(name: str, table: RequestTable, placement: Placement) -> Iterator[tuple[int, str]]:
    """Yield the attempts that have left an instance. It may still hold what it offered to another memory.

    With each comes the name of the instance that decodes it.
    """
    for uid, attempt in table.attempts():
        if name in _lenders(attempt.route, placement) and has_left(attempt, placement):
            yield uid, attempt.route.decode


def has_left(attempt: Attempt, placement: Placement) -> bool:
    """Tell whether decode holds an attempt. If it has to read its pages elsewhere, a token of its own shows that."""
    route = attempt.route
    memories = _memories(placement)
    travels = memories.get(route.prefill) != memories.get(route.decode)
    return attempt.new_tokens > int(travels)


def _is_drained(uid: int, attempt: Attempt) -> bool:
    return attempt.request.ending or not attempt.request.attempts[uid]


def _lenders(route: Route, placement: Placement) -> set[str]:
    """Return the instances whose pages others read from another memory."""
    ways = [(encoder, route.prefill) for encoder in route.encode] + [(route.prefill, route.decode)]
    memories = _memories(placement)
    return {lender for lender, reader in ways if memories.get(lender) != memories.get(reader)}


def _memories(placement: Placement) -> dict[str, str]:
    """Return the memories of the instances by name; a route may name one no more that hosts something else by now."""
    return {instance.name: instance.memory for instance in placement.instances}
