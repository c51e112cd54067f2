"""Decode on a GPU by CUDA graphs: the host tells what has changed and replays, the GPU goes on by itself.

A graph is recorded for a number of rows and a length of contexts, and serves all below. Page tables, lengths
and tokens are in the GPU's memory (`DecodeRows`), where a step finds what the last one left.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from unifiedserve.attention import PagedKV
from unifiedserve.device.base import DecodeRow, DecodeStep, Device, Ends, SideStream
from unifiedserve.device.cuda.decode_rows import DecodeRows
from unifiedserve.device.cuda.decoder import CudaDecoder
from unifiedserve.device.cuda.step_graphs import StepGraphs
from unifiedserve.device.operators import Attention, Multiply, PlannedAttention


class WholeEnds:
    """Embed with a causal model of transformers, and make its logits: `Ends` on one device."""

    def __init__(self, model: Any, multiply: Multiply) -> None:
        self.embed: Callable[[Tensor], Tensor] = model.get_input_embeddings()
        self._head = model.get_output_embeddings()
        self._multiply = multiply

    @property
    def width(self) -> int:
        return len(self._head.weight)

    def logits_of(self, hidden: Tensor) -> Tensor:
        return self._multiply(hidden, self._head.weight, self._head.bias)


class DecodeGraphs:
    """Decode a causal model whose layers, or a rank's part of them, a `CudaDecoder` runs."""

    def __init__(
        self,
        ends: Ends,
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
        """Make room for so many rows of sequences of so many tokens. Records the graphs that most steps need.

        `position_rows` are those of the model's positions, which are all alike in decode.
        """
        self.rows = rows
        self._layers, self._attention, self._kv = layers, attention, kv
        self._stream, self._device = stream, device
        self._ends = ends
        self._position_rows = position_rows
        self._state = DecodeRows(rows, -(-tokens // kv.page_size), device)
        self._logits = torch.empty(rows, ends.width, dtype=torch.float32, device=device.torch)
        # all steps write their partial results to the same memory, because they are done one after another
        scratch = attention.scratch_of_rows(rows, tokens, layers.heads, kv.k(0).shape[3])
        self._scratch = torch.empty(scratch, dtype=torch.float32, device=device.torch)
        self._last_places: tuple[tuple[int, ...], Tensor] = (), torch.empty(0)
        together = layers.divided
        self._graphs = StepGraphs(self._step, lambda: self._state.tell(()), stream, rows, tokens, together=together)
        with torch.inference_mode(), stream.use():
            self._graphs.record_first()
            stream.mark().wait()  # a kernel that fails is found here, not by the first request

    @property
    def wants(self) -> bool:
        """Tell whether a graph is wanted that can be recorded."""
        return self._graphs.wants

    @property
    def eager_steps(self) -> int:
        """Return how many steps were issued operation by operation."""
        return self._graphs.eager_steps

    def launch(self, rows: Sequence[DecodeRow], draw: Callable[[Tensor], Tensor]) -> DecodeStep:
        numbers = tuple(row.number for row in rows)
        longest = max(row.length for row in rows) + 1
        for row in rows:
            if len(row.pages) * self._kv.page_size <= row.length:
                raise ValueError(f"{len(row.pages)} pages of {self._kv.page_size} cannot hold {row.length + 1} tokens")
        with torch.inference_mode(), self._stream.use():
            self._state.tell(rows)
            self._graphs.run(max(numbers) + 1, longest)
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

    def prepare(self) -> None:
        if self.wants:
            with torch.inference_mode(), self._stream.use():
                self._graphs.record_next()

    def _places(self, numbers: tuple[int, ...]) -> Tensor | None:
        """Return the rows' numbers, int64 [n] on the device; None if they are the first ones in order."""
        if numbers == tuple(range(len(numbers))):
            return None
        if self._last_places[0] != numbers:  # they stay the same for many steps
            self._last_places = numbers, self._device.upload(torch.tensor(numbers))
        return self._last_places[1]

    def _step(self, rows: int, context: int) -> None:
        """Do a step of the first `rows` rows up to their logits. None is longer than `context`."""
        state = self._state
        places = state.lengths[:rows].clamp(min=0)
        positions = (places + state.offsets[:rows]).long().expand(self._position_rows, rows)
        slots = state.slots(rows, self._kv.page_size)
        attention = _RowsAttention(state, rows, context, slots, self._kv, self._attention, self._scratch)
        embeds = self._ends.embed(state.tokens[:rows].clamp(min=0))
        hidden = self._layers.run(embeds, positions, attention, self._kv, None)
        self._logits[:rows].copy_(self._ends.logits_of(hidden))
        state.advance(rows)


class _RowsAttention:
    """Attend for one new token a row, as a `StoredAttention`."""

    def __init__(
        self,
        state: DecodeRows,
        rows: int,
        context: int,
        slots: Tensor,
        kv: PagedKV,
        kernels: Attention,
        scratch: Tensor,
    ) -> None:
        self.slots = slots
        self._lengths = state.lengths[:rows] + 1
        self._table = state.table[:rows]
        self._context, self._kv, self._kernels, self._scratch = context, kv, kernels, scratch
        self._plans: dict[int, PlannedAttention] = {}

    def attend_stored(self, q: Tensor, layer: int, scale: float) -> Tensor:
        keys, values = self._kv.k(layer), self._kv.v(layer)
        groups = q.shape[1] // keys.shape[2]
        if groups not in self._plans:
            shape = self._context, groups, self._scratch
            self._plans[groups] = self._kernels.of_rows(self._lengths, self._table, *shape)
        return self._plans[groups](q, keys, values, scale)
