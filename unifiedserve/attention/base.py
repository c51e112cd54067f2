"""Describe the ragged batch: each sequence's new tokens, and where its keys and values lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from torch import Tensor


class PagedKV(Protocol):
    """View a KV cache as attention needs it. Views are [num_pages, page_size, kv_heads, head_dim]."""

    page_size: int
    #: [num_pages, layers, 2, page_size, kv_heads, head_dim], K before V
    pages: Tensor
    #: float32 [num_pages, layers, 2, kv_heads, page_size], if `pages` are codes of int8; None if they are not
    scales: Tensor | None

    def k(self, layer: int) -> Tensor: ...

    def v(self, layer: int) -> Tensor: ...


class AttentionRules(NamedTuple):
    """List what some models do beside a softmax of scaled scores. A `PLAIN` one does no more.

    window a token sees the last so many keys before its limit
    chunk  a token sees only keys of its own chunk of so many positions, counted from the sequence's start
    cap    scores, once scaled, become cap * tanh(score / cap)
    sinks  [q_heads]  a further score of each head, which joins the softmax's denominator alone
    """

    window: int | None = None
    chunk: int | None = None
    cap: float | None = None
    sinks: Tensor | None = None

    @property
    def has_own_softmax(self) -> bool:
        return self.cap is not None or self.sinks is not None


PLAIN = AttentionRules()


class CrossSpan(NamedTuple):
    """Select new tokens [first, last) that attend to the same rows of keys and values.

    `rows` are int64 [m] row numbers of their buffer. `early` tokens come before the first medium of their prompt.
    """

    first: int
    last: int
    rows: Tensor
    early: bool = False


class Span(NamedTuple):
    """Describe one sequence's part of a step: tokens [start, stop) are new, [0, start) are in the cache already.

    Hidden states are wanted of the last `wanted` new tokens: of none in the middle of a prompt, of all if None.
    `limits` int64 [stop - start] are the first keys that each new token does not see; None: those behind it.
    `cross` are its new tokens, counted from `start`, that attend to other rows, too.
    `state` are the pages of its recurrent state, if the model has one.
    """

    pages: Sequence[int] | npt.NDArray[np.int32]
    start: int
    stop: int
    wanted: int | None = None
    limits: Tensor | None = None
    cross: Sequence[CrossSpan] = ()
    state: Sequence[int] = ()


class SequenceView(NamedTuple):
    """View one sequence of a ragged batch, as plain numbers: rows [first, last) of the batch, and its pages."""

    first: int
    last: int
    pages: Tensor
    kv_len: int
    limits: Tensor | None


@dataclass(frozen=True)
class RaggedBatch:
    """Lay new tokens of B sequences back to back with their KV pages. They are T in all; index ranges are half-open.

    All of it is in host memory: it says what the device is to compute.

    qo_indptr       int32 [B+1]  rows of each sequence in the batch
    kv_page_indptr  int32 [B+1]  each sequence's range in kv_page_indices
    kv_page_indices int32 [P]    page numbers
    kv_lens         int32 [B]    tokens of context after this step, the new ones included
    slots           int64 [T]    page * page_size + offset: where each new token's K and V go
    wanted_indptr   int32 [B+1]  each sequence's range among the W tokens whose hidden states are wanted, its last ones
    limits          B of them    those of each sequence's span
    cross           in order     those of all spans, counted in the batch
    states          B of them    pages of each sequence's recurrent state
    """

    qo_indptr: Tensor
    kv_page_indptr: Tensor
    kv_page_indices: Tensor
    kv_lens: Tensor
    slots: Tensor
    wanted_indptr: Tensor
    limits: tuple[Tensor | None, ...]
    states: tuple[Sequence[int], ...] = ()
    cross: tuple[CrossSpan, ...] = ()

    @staticmethod
    def build(spans: Sequence[Span], page_size: int) -> RaggedBatch:
        """Build the index arrays for one step.

        Raises ValueError if a sequence has too few pages or no new token, if more tokens are wanted than are new, or if
        the limits are not one a new token, within the context.
        """
        for span in spans:
            if not 0 <= span.start < span.stop:
                raise ValueError(f"no new tokens in [{span.start}, {span.stop})")
            if len(span.pages) * page_size < span.stop:
                raise ValueError(f"{len(span.pages)} pages of {page_size} tokens cannot hold {span.stop} tokens")
            if span.wanted is not None and not 0 <= span.wanted <= span.stop - span.start:
                raise ValueError(f"{span.wanted} of {span.stop - span.start} new tokens are wanted")
            if span.limits is not None and (
                len(span.limits) != span.stop - span.start or span.limits.max() > span.stop
            ):
                raise ValueError(f"limits {span.limits.tolist()} for tokens [{span.start}, {span.stop})")
        pages = [np.asarray(span.pages[: -(-span.stop // page_size)], np.int32) for span in spans]
        starts, stops = np.array([(span.start, span.stop) for span in spans]).T
        lengths = stops - starts
        rows, ranges = _indptr(lengths), _indptr([len(used) for used in pages])
        wanted = [span.stop - span.start if span.wanted is None else span.wanted for span in spans]
        indices = np.concatenate(pages)
        positions = np.arange(rows[-1]) + np.repeat(starts - rows[:-1], lengths)
        used = indices[np.repeat(ranges[:-1], lengths) + positions // page_size].astype(np.int64)
        return RaggedBatch(
            qo_indptr=torch.from_numpy(rows),
            kv_page_indptr=torch.from_numpy(ranges),
            kv_page_indices=torch.from_numpy(indices),
            kv_lens=torch.from_numpy(stops.astype(np.int32)),
            slots=torch.from_numpy(used * page_size + positions % page_size),
            wanted_indptr=torch.from_numpy(_indptr(wanted)),
            limits=tuple(span.limits for span in spans),
            cross=tuple(
                part._replace(first=row + part.first, last=row + part.last)
                for span, row in zip(spans, rows.tolist(), strict=False)
                for part in span.cross
            ),
            states=tuple(span.state for span in spans),
        )

    @cached_property
    def wanted_rows(self) -> Tensor:
        """Return int64 [W]: the rows of the wanted tokens in the batch."""
        counts = self.wanted_indptr.diff()
        return torch.arange(int(counts.sum())) + (self.qo_indptr - self.wanted_indptr)[1:].repeat_interleave(counts)

    @cached_property
    def positions(self) -> Tensor:
        """Return int64 [T]: the new tokens' numbers in their sequences."""
        counts = self.qo_indptr.diff()
        return torch.arange(int(counts.sum())) + (self.kv_lens - self.qo_indptr[1:]).repeat_interleave(counts)

    @property
    def begins(self) -> Tensor:
        """Return bool [B]: whether these are a sequence's first tokens."""
        return self.kv_lens == self.qo_indptr.diff()

    @cached_property
    def cross_rows(self) -> Tensor:
        """Return int64 [S]: the rows in the batch of the tokens that `cross` is about."""
        return torch.cat([torch.arange(span.first, span.last) for span in self.cross])

    @cached_property
    def sequences(self) -> list[SequenceView]:
        rows, ranges = self.qo_indptr.tolist(), self.kv_page_indptr.tolist()
        return [
            SequenceView(first, last, self.kv_page_indices[page_first:page_last], kv_len, limits)
            for first, last, page_first, page_last, kv_len, limits in zip(
                rows, rows[1:], ranges, ranges[1:], self.kv_lens.tolist(), self.limits, strict=False
            )
        ]


def _indptr(lengths: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    out = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=out[1:])
    return out
