"""Decode on a device that keeps the rows of its sequences: a step is launched before the last one's tokens are known.

The device goes on with what it has drawn. The host learns a step later that an answer has ended, so that a row may be
computed once too often: its result is dropped, and its pages are given back only when that step is done.
"""

import heapq
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unifiedserve.device import Decoder, DecodeRow, DecodeStep, upload_behind
from unifiedserve.messages.wire import Token
from unifiedserve.sampling.adjust import Pending
from unifiedserve.worker.language.sampler import Drawing, Key, Sampler
from unifiedserve.worker.language.sequence import Sequence

#: rows beyond twice the sequences are given up from so many on: a step computes all rows up to the last one
_MANY_ROWS = 8


@dataclass(slots=True)
class _Flight:
    """Follow a step under way. Results of the `void` sequences are dropped."""

    sequences: dict[Key, Sequence]
    step: DecodeStep
    drawing: Drawing
    launched: float  # monotonic seconds
    host: float  # seconds it took to launch
    eager: bool  # the device had no recorded step for it
    void: set[Key] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Collected:
    """Report a step that is done: its sequences, and the tokens of those that were still running."""

    sequences: dict[Key, Sequence]
    tokens: list[Token]
    launched: float  # monotonic seconds
    host: float  # seconds that the host spent on it, beside those it waited
    eager: bool  # the device had no recorded step for it


class DecodeAhead:
    """Launch and collect steps: up to two are under way. The stage knows which sequences there are."""

    def __init__(self, decoder: Decoder, sampler: Sampler) -> None:
        self._decoder, self._sampler = decoder, sampler
        self._flights: deque[_Flight] = deque()
        #: sequences whose next token is on its way: those of the newest step
        self.pending: set[Key] = set()
        self._rows: dict[Key, int] = {}
        self._free = list(range(decoder.rows))

    def __len__(self) -> int:
        """Return how many steps are under way."""
        return len(self._flights)

    @property
    def uids(self) -> set[int]:
        """Return the requests of the steps under way."""
        return {uid for flight in self._flights for uid, _ in flight.sequences}

    def must_wait(self, sequences: Mapping[Key, Sequence]) -> bool:
        """Tell whether steps under way must be collected before these sequences' next one.

        So it is if a token depends on the values of those before, or to have the sequences in the first rows again.
        """
        if not self._flights:
            return False
        waiting = {key for key, sequence in sequences.items() if sequence.sampling.waits}
        return self._scattered(sequences) or not waiting.isdisjoint(self.pending)

    def launch(self, sequences: dict[Key, Sequence]) -> None:
        """Launch the next step of these, at least one; their pages have room for it."""
        if not self._flights and self._scattered(sequences):
            self._give_up(list(self._rows))
        self._give_up(self._rows.keys() - sequences.keys())
        rows = [self._row(key, sequence) for key, sequence in sequences.items()]
        several, drawing = list(sequences.values()), list[Drawing]()
        indices = [row.length + 1 - sequence.num_prompt for row, sequence in zip(rows, several, strict=True)]

        def draw(logits: Tensor) -> Tensor:
            pending = self._pending_tokens(sequences)
            drawing.append(self._sampler.draw(several, logits, indices, pending=pending, keep=True))
            return drawing[0].draw.tokens

        launched, eager_steps = time.monotonic(), self._decoder.eager_steps
        step = self._decoder.launch(rows, draw)
        host, eager = time.monotonic() - launched, self._decoder.eager_steps > eager_steps
        self._flights.append(_Flight(sequences, step, drawing[0], launched, host, eager))
        self.pending = set(sequences)

    def prepare(self) -> None:
        """Let the device record what the next steps need; it may take as long as some of them."""
        self._decoder.prepare()

    def collect(self, running: Collection[Key]) -> Collected:
        """Wait for the oldest step, and append its tokens to sequences still `running`."""
        flight = self._flights.popleft()
        if not self._flights:
            self.pending = set()
        values = flight.step.tokens()
        done = time.monotonic()
        sampled = flight.drawing.draw.finish(values)
        errors, tokens = flight.drawing.errors, []
        for row, (key, sequence) in enumerate(flight.sequences.items()):
            if key in running and key not in flight.void:
                if values[row] < 0:
                    self._void(key)
                tokens.append(self._sampler.append(sequence, sampled[row], errors.get(row)))
        host = flight.host + time.monotonic() - done
        return Collected(flight.sequences, tokens, flight.launched, host, flight.eager)

    def uses(self, key: Key) -> bool:
        """Tell whether a step under way writes to a sequence's pages."""
        return any(key in flight.sequences for flight in self._flights)

    def wait(self) -> None:
        """Return when no step uses any page; their tokens are still to be collected."""
        for flight in self._flights:
            flight.step.wait()

    def _pending_tokens(self, sequences: Mapping[Key, Sequence]) -> Pending | None:
        """Return last tokens on their way that penalties need; None if none does."""
        rows = {
            key: row
            for row, (key, sequence) in enumerate(sequences.items())
            if key in self.pending and sequence.sampling.follows
        }
        if not rows:
            return None
        newest = self._flights[-1]
        drawn = newest.drawing.draw.tokens
        places = {key: place for place, key in enumerate(newest.sequences)}
        own = upload_behind(torch.tensor([places[key] for key in rows]), drawn.device)
        return Pending(list(rows.values()), drawn[own])

    def _scattered(self, sequences: Collection[Key]) -> bool:
        rows = max(self._rows.values(), default=0) + 1
        return rows > _MANY_ROWS and rows > 2 * len(sequences)

    def _row(self, key: Key, sequence: Sequence) -> DecodeRow:
        number, pending = self._rows.get(key), key in self.pending
        if number is None:
            number = self._rows[key] = heapq.heappop(self._free)
        tokens = sequence.token_ids
        token = None if pending else tokens[-1]
        return DecodeRow(number, token, len(tokens) - 1 + pending, sequence.position_offset, sequence.pages)

    def _give_up(self, keys: Iterable[Key]) -> None:
        for key in keys:
            row = self._rows.pop(key)
            self._decoder.forget(row)
            heapq.heappush(self._free, row)

    def _void(self, key: Key) -> None:
        """Drop what the newest step makes of a sequence: it went on with a token that was not decided."""
        if key in self.pending:
            self.pending.discard(key)
            self._flights[-1].void.add(key)
