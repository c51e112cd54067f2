"""Share out a prompt's units among nodes: a pure function of what waits there.

A prompt's media are spread over several nodes, and so are the units of a long video (EPD §3.3.2, between machines).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from unifiedserve.messages.load import EncodeNode
from unifiedserve.messages.wire import MediaSource

_LEAST_TOKENS = 512  # of a piece: each node that has one gets the whole medium's bytes


class Share(NamedTuple):
    """Name units (counted over the whole prompt) for one node, ascending."""

    node: EncodeNode
    units: list[int]


class _Piece(NamedTuple):
    units: range
    tokens: int


def share_out(sources: Sequence[MediaSource], wanted: Sequence[int], nodes: Sequence[EncodeNode]) -> list[Share]:
    """Give the wanted units of these media to nodes. Each piece goes to the one with the fewest tokens before it.

    The largest pieces go first. There must be a node; of equals the first one is taken.
    """
    units_wanted = set(wanted)
    pieces = sorted(_pieces(sources, units_wanted, len(nodes)), key=lambda piece: -piece.tokens)
    pending, shares = [node.pending for node in nodes], [list[int]() for _ in nodes]
    for piece in pieces:
        chosen = min(range(len(nodes)), key=pending.__getitem__)
        pending[chosen] += piece.tokens
        shares[chosen] += [unit for unit in piece.units if unit in units_wanted]
    return [Share(node, sorted(units)) for node, units in zip(nodes, shares, strict=True) if units]


def sources_of(sources: Sequence[MediaSource], wanted: Sequence[int]) -> Mapping[int, list[int]]:
    """Return the wanted units by their medium's number among the sources, counted within the medium."""
    return {
        number: units
        for number, source in enumerate(sources)
        if (units := [unit - source.first_unit for unit in wanted if unit in _range(source)])
    }


def _pieces(sources: Sequence[MediaSource], wanted: set[int], nodes: int) -> Iterator[_Piece]:
    """Yield the wanted parts of media, cut where one exceeds a node's part of all."""
    total = sum(_tokens(source, _range(source), wanted) for source in sources)
    largest = max(_LEAST_TOKENS, math.ceil(total / nodes))
    for source in sources:
        own, group = _range(source), source.plan.units_per_group
        groups = max(1, len(own) // max(1, group))
        count = min(groups, math.ceil(_tokens(source, own, wanted) / largest))
        for piece in range(count):
            first, last = (own.start + groups * each // count * group for each in (piece, piece + 1))
            units = range(first, own.stop if piece == count - 1 else last)
            if tokens := _tokens(source, units, wanted):
                yield _Piece(units, tokens)


def _range(source: MediaSource) -> range:
    return range(source.first_unit, source.first_unit + source.plan.units)


def _tokens(source: MediaSource, units: range, wanted: set[int]) -> int:
    return sum(source.plan.unit_tokens(unit - source.first_unit) for unit in units if unit in wanted)
