"""Choose the node that takes a request: pure policies over what nodes tell of themselves.

With a thousand nodes a decision takes microseconds, because what counts is kept in arrays, a row a node.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from hashlib import blake2b
from random import Random
from typing import NamedTuple

import numpy as np

from unifiedserve.messages.costs import Costs
from unifiedserve.messages.load import EngineLoad
from unifiedserve.scheduling import Work

_NEAR = 0.1  # of the best node's seconds, or
_SOON = 0.02  # seconds: nodes as good as the best one, of which the same request always takes the same
_CROWDED = 0.3  # of a typical request's seconds for each request beside it, streams included
_RECENT = 100  # requests of which the typical one is the mean
_TYPICAL = Costs(prompt_token=1e-3, visual_token=1e-3, image_pixel=2e-8, video_second=1.0)  # where nobody knows yet
_MOST_ENCODERS = 8  # that are named for one request
_LEAST_PIECE = 512  # tokens that go to one of them, at least
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # makes the first bits of a product depend on all others (Knuth 6.4)
_KINDS = ("prompt_token", "visual_token", "image_pixel", "video_second")
_PROMPT = _KINDS[:1]  # what is no work of vision or the encoder


class Policy(StrEnum):
    """Name how a node is chosen. `COST`: by when it would bring the first token."""

    COST = "cost"
    LEAST_REQUESTS = "least-requests"
    ROUND_ROBIN = "round-robin"
    RANDOM = "random"


class Request(NamedTuple):
    """Describe a request's work. `key` names its media or conversation.

    Of what the nodes `known` have served before, this part of the work need not be done again there. With `only` it
    can go nowhere else.
    """

    work: Work
    key: str = ""
    cached: Work = Work(prompt_tokens=0)
    known: Collection[str] = ()
    only: str | None = None


class _Rows(ABC):
    """Hold nodes by name, each with a row in arrays: that of the names' hashes, and those of a subclass."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._hashes = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._names))

    def leave(self, name: str) -> None:
        """Forget a node, if it is known."""
        if (row := self._rows.pop(name, None)) is None:
            return
        del self._names[row]
        self._rows = {name: number for number, name in enumerate(self._names)}
        self._hashes = np.delete(self._hashes, row)
        self._drop_row(row)

    def _row_of(self, name: str) -> int:
        """Return a node's row; one that is not known joins, with zeros in all other arrays."""
        if name not in self._rows:
            self._rows[name] = len(self._names)
            self._names.append(name)
            self._hashes = np.append(self._hashes, _hash(name))
            self._add_row()
        return self._rows[name]

    @abstractmethod
    def _add_row(self) -> None:
        """Append a row of zeros to the subclass's arrays."""

    @abstractmethod
    def _drop_row(self, row: int) -> None:
        """Delete a row of the subclass's arrays."""


class Fleet(_Rows):
    """Hold the nodes that serve one model.

    Their reports may be some tenths of a second old: requests sent since count.
    """

    def __init__(self, policy: Policy = Policy.COST, seed: int = 0) -> None:
        self._choose: Callable[[Request], int] = {
            Policy.COST: self._by_cost,
            Policy.LEAST_REQUESTS: self._by_requests,
            Policy.ROUND_ROBIN: self._in_turn,
            Policy.RANDOM: self._at_random,
        }[policy]
        super().__init__()
        self._random = Random(seed)
        self._turn = -1
        self._chosen = 0
        self._typical = 0.0  # seconds of a request lately
        self._waits = np.zeros(0)
        self._requests = np.zeros(0)
        self._costs = np.zeros((0, len(_KINDS)))  # zeros where a node does not know them, or has others do the work
        self._does = np.zeros((0, len(_KINDS)), bool)  # each kind of work
        self._told: list[tuple[Costs, bool]] = []  # what these were made from
        self._filled: np.ndarray | None = None  # and what was made from them, until they change

    def update(self, name: str, load: EngineLoad, *, encodes: bool = True) -> None:
        """Take what a node tells; one that is not known joins. Unless it `encodes`, media cost it their prompt only."""
        row = self._row_of(name)
        self._waits[row], self._requests[row] = load.wait, load.in_flight
        if self._told[row] != (load.costs, encodes):
            self._told[row], self._filled = (load.costs, encodes), None
            self._does[row] = [kind in _PROMPT or encodes for kind in _KINDS]
            self._costs[row] = [getattr(load.costs, kind) for kind in _KINDS] * self._does[row]

    def choose(self, request: Request) -> str | None:
        """Return the node that takes a request, and count it there.

        It counts until the node tells of itself again; None without nodes.
        """
        if not self._names or (request.only is not None and request.only not in self._rows):
            return None
        row = self._choose(request) if request.only is None else self._rows[request.only]
        self._requests[row] += 1
        return self._names[row]

    def _add_row(self) -> None:
        self._waits, self._requests = np.append(self._waits, 0.0), np.append(self._requests, 0.0)
        self._costs = np.vstack([self._costs, np.zeros((1, len(_KINDS)))])
        self._does = np.vstack([self._does, np.ones((1, len(_KINDS)), bool)])
        self._told.append((Costs(), True))
        self._filled = None

    def _drop_row(self, row: int) -> None:
        self._waits, self._requests = np.delete(self._waits, row), np.delete(self._requests, row)
        self._costs, self._does = np.delete(self._costs, row, axis=0), np.delete(self._does, row, axis=0)
        del self._told[row]
        self._filled = None

    def _fill(self) -> np.ndarray:
        """Return the costs of each node. Those of the others stand in where a node does not know its own.

        A node pays nothing for work that others do for it.
        """
        known = self._costs > 0
        sums, counts = self._costs.sum(axis=0), known.sum(axis=0)
        typical = np.where(counts > 0, sums / np.maximum(counts, 1), [getattr(_TYPICAL, kind) for kind in _KINDS])
        return np.where(known, self._costs, typical) * self._does

    def _by_cost(self, request: Request) -> int:
        """Return the node that would bring the first token soonest.

        Nodes serve the request with the least slack, so that short ones overtake long ones: waiting work delays a
        request shorter than usual in proportion only. So it need not keep away from nodes that have a long video before
        them.
        """
        if self._filled is None:
            self._filled = self._fill()
        costs = self._filled
        own = costs @ _amounts(request.work)
        typical = self._learn(float(np.add.reduce(own)) / len(own))  # a third of what mean() takes
        expected = self._requests * (_CROWDED * typical) + own
        expected += self._waits * np.minimum(1.0, own / typical) if typical else self._waits
        for name in request.known:
            if (row := self._rows.get(name)) is not None:
                expected[row] -= costs[row] @ _amounts(request.cached)
        best = float(expected[expected.argmin()])  # min() goes through Python
        near = (expected <= best + max(_SOON, _NEAR * abs(best))).nonzero()[0]
        chosen = int(near[0]) if len(near) == 1 else self._home(near, request.key)
        self._waits[chosen] += own[chosen]
        return chosen

    def _learn(self, seconds: float) -> float:
        """Return what a request takes usually, this one included."""
        self._chosen = min(self._chosen + 1, _RECENT)
        self._typical += (seconds - self._typical) / self._chosen
        return self._typical

    def _home(self, rows: np.ndarray, key: str) -> int:
        """Return which of these nodes a key belongs to (rendezvous hashing).

        Without a key it is the node with the fewest requests. Every router finds the same one, and keeps nothing for
        that.
        """
        if key:
            return int(rows[int(((self._hashes[rows] ^ _hash(key)) * _FACTOR).argmax())])
        return int(rows[int(self._requests[rows].argmin())])

    def _by_requests(self, request: Request) -> int:
        return int(self._requests.argmin())

    def _in_turn(self, request: Request) -> int:
        self._turn = (self._turn + 1) % len(self._names)
        return self._turn

    def _at_random(self, request: Request) -> int:
        return self._random.randrange(len(self._names))


class Encoders(_Rows):
    """Hold the nodes that encode for others, of one model. Tokens given out since a node told of itself count."""

    def __init__(self) -> None:
        super().__init__()
        self._pending = np.zeros(0)  # visual tokens that are still to be encoded

    def update(self, name: str, load: EngineLoad) -> None:
        """Take what a node tells; one that is not known joins."""
        row = self._row_of(name)  # which may make the array another one
        self._pending[row] = load.visual_tokens

    def choose(self, tokens: int, key: str = "") -> list[tuple[str, int]]:
        """Return the nodes that may encode so many visual tokens, and their waiting work.

        Those with the least come first. Where less than the request's own tokens makes the difference, its media always
        find the same node (rendezvous hashing). They count there until the nodes tell of themselves again.
        """
        if not self._rows:
            return []
        behind = (self._pending - self._pending.min()) // max(1, tokens)
        place = behind - ((self._hashes ^ _hash(key)) * _FACTOR) / 2.0**65  # which is less than a half
        most = min(_MOST_ENCODERS, len(place))
        rows = np.argpartition(place, most - 1)[:most]
        rows = rows[place[rows].argsort()]
        found = [(self._names[row], int(self._pending[row])) for row in rows]
        self._give(rows, tokens)
        return found

    def _give(self, rows: np.ndarray, tokens: int) -> None:
        """Count tokens where they will be encoded: in pieces, each where the fewest wait, as text nodes have it."""
        piece = max(_LEAST_PIECE, -(-tokens // len(rows)))
        for given in range(0, tokens, piece):
            self._pending[rows[self._pending[rows].argmin()]] += min(piece, tokens - given)

    def _add_row(self) -> None:
        self._pending = np.append(self._pending, 0.0)

    def _drop_row(self, row: int) -> None:
        self._pending = np.delete(self._pending, row)


def _amounts(work: Work) -> np.ndarray:
    """Return how much there is of each kind of work; unknown work of videos counts as nothing."""
    return np.array((work.prompt_tokens, work.visual_tokens, work.image_pixels, work.video_seconds or 0.0))


def _hash(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest()))
