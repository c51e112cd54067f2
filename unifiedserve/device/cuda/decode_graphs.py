"""Decode on a GPU by CUDA graphs: the host tells what has changed and replays, the GPU goes on by itself.

A graph is recorded for a number of rows and a length of contexts, and serves all below. Page tables, lengths
and tokens are in the GPU's memory (`DecodeRows`), where a step finds what the last one left.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from unifiedserve.attention import PagedKV
from unifiedserve.device.base import DecodeRow, DecodeStep, Device, SideStream
from unifiedserve.device.cuda.decode_rows import DecodeRows
from unifiedserve.device.cuda.decoder import CudaDecoder
from unifiedserve.device.cuda.operators import Attention, PlannedAttention

_log = logging.getLogger(__name__)
#: rows of the smaller graphs; beyond, there is one for each multiple of the last
SMALL_BUCKETS = (1, 2, 4, 8)
#: tokens of context of the first graphs; the next ones are for so many times as many
FIRST_CONTEXT, TIMES = 4096, 4

Shape = tuple[int, int]  # rows, tokens of context


class DecodeGraphs:
    """A `Decoder` for a causal model of transformers whose layers a `CudaDecoder` runs."""

    def __init__(
        self,
        model: Any,
        layers: CudaDecoder,
        attention: Attention,
        kv: PagedKV,
        stream: SideStream,
        device: Device,
        *,
        rows: int,
        tokens: int,
        position_rows: int,
    ) -> None:
        """Make room for so many rows of sequences of so many tokens, and record the graphs for short contexts.

        `position_rows` are those of the model's positions, which are all alike in decode.
        """
        self.rows = rows
        self._layers, self._attention, self._kv = layers, attention, kv
        self._stream, self._device = stream, device
        self._embed = model.get_input_embeddings()
        self._head = model.get_output_embeddings()
        self._position_rows = position_rows
        self._state = DecodeRows(rows, -(-tokens // kv.page_size), device)
        self._logits = torch.empty(rows, len(self._head.weight), dtype=torch.float32, device=device.torch)
        self._tokens = tokens
        self._replays: dict[Shape, Callable[[], object]] = {}
        self._last_places: tuple[tuple[int, ...], Tensor] = (), torch.empty(0)
        self._record_first()

    def launch(self, rows: Sequence[DecodeRow], draw: Callable[[Tensor], Tensor]) -> DecodeStep:
        numbers = tuple(row.number for row in rows)
        longest = max(row.length for row in rows) + 1
        for row in rows:
            if len(row.pages) * self._kv.page_size <= row.length:
                raise ValueError(f"{len(row.pages)} pages of {self._kv.page_size} cannot hold {row.length + 1} tokens")
        with torch.inference_mode(), self._stream.use():
            shape = row_bucket(max(numbers) + 1, self.rows), context_bucket(longest, self._tokens)
            replay = self._replays.get(shape) or self._record(shape)
            self._state.tell(rows)
            replay()
            places = self._places(numbers)
            tokens = draw(self._logits[: len(rows)] if places is None else self._logits.index_select(0, places))
            drawn = tokens.int()
            if places is None:
                self._state.tokens[: len(rows)] = drawn
            else:
                self._state.tokens.index_copy_(0, places, drawn)
            return self._stream.download(tokens)

    def forget(self, row: int) -> None:
        self._state.forget(row)

    def _places(self, numbers: tuple[int, ...]) -> Tensor | None:
        """Return the rows' numbers, int64 [n] on the device; None if they are the first ones in order."""
        if numbers == tuple(range(len(numbers))):
            return None
        if self._last_places[0] != numbers:  # they stay the same for many steps
            self._last_places = numbers, self._device.upload(torch.tensor(numbers))
        return self._last_places[1]

    def _record_first(self) -> None:
        start = time.monotonic()
        context = context_bucket(1, self._tokens)
        with torch.inference_mode(), self._stream.use():
            for rows in sorted(row_buckets(self.rows), reverse=True):  # the largest takes the memory of all
                self._record((rows, context))
        _log.info("recorded %d steps of decode in %.1f s", len(self._replays), time.monotonic() - start)

    def _record(self, shape: Shape) -> Callable[[], object]:
        """Record a step while no row has a sequence; then what is computed goes nowhere."""
        self._state.tell(())
        replay = self._replays[shape] = self._stream.record(lambda: self._step(*shape))
        return replay

    def _step(self, rows: int, context: int) -> None:
        """Do a step of the first `rows` rows, whose contexts are no longer, up to their logits."""
        state = self._state
        places = state.lengths[:rows].clamp(min=0)
        positions = (places + state.offsets[:rows]).long().expand(self._position_rows, rows)
        slots = state.slots(rows, self._kv.page_size)
        attention = _RowsAttention(state, rows, context, slots, self._kv, self._attention)
        embeds = self._embed(state.tokens[:rows].clamp(min=0))
        hidden = self._layers.run(embeds, positions, attention, self._kv, None)
        self._logits[:rows].copy_(linear(hidden, self._head.weight, self._head.bias))
        state.advance(rows)


class _RowsAttention:
    """A `StoredAttention` of one new token a row."""

    def __init__(
        self, state: DecodeRows, rows: int, context: int, slots: Tensor, kv: PagedKV, kernels: Attention
    ) -> None:
        self.slots = slots
        self._lengths = state.lengths[:rows] + 1
        self._table = state.table[:rows]
        self._context, self._kv, self._kernels = context, kv, kernels
        self._plans: dict[int, PlannedAttention] = {}

    def attend_stored(self, q: Tensor, layer: int, scale: float) -> Tensor:
        keys, values = self._kv.k(layer), self._kv.v(layer)
        groups = q.shape[1] // keys.shape[2]
        if groups not in self._plans:
            self._plans[groups] = self._kernels.of_rows(self._lengths, self._table, self._context, groups)
        return self._plans[groups](q, keys, values, scale)


def row_buckets(most: int) -> Iterator[int]:
    """Yield the numbers of rows for which there are graphs, up to `most`, ascending."""
    yield from (bucket for bucket in SMALL_BUCKETS if bucket < most)
    step = SMALL_BUCKETS[-1]
    yield from range(2 * step, most, step)
    yield most


def row_bucket(rows: int, most: int) -> int:
    """Return the smallest of them that has room for so many rows."""
    return next(bucket for bucket in row_buckets(most) if bucket >= rows)


def context_bucket(tokens: int, most: int) -> int:
    """Return for how long contexts a graph is recorded that takes one of so many tokens, of `most` at most."""
    bucket = FIRST_CONTEXT
    while bucket < tokens:
        bucket *= TIMES
    return min(bucket, most)
