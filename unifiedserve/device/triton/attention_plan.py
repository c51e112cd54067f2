"""Plan an attention step: which program takes which queries and which of their keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from unifiedserve.attention.base import CrossSpan, RaggedBatch

if TYPE_CHECKING:
    from torch import Tensor

#: rows of a tile, one for each token and head, of a sequence with one new token: the least that a product takes
SINGLE_ROWS = 16
#: rows of other tiles, or twice as many: those of one wgmma (sm_90), or of a warpgroup's four mma (sm_80)
TILE_ROWS = 64
#: keys of a part: few enough that one long sequence fills many multiprocessors, and so many that writing and merging a
#: part's outputs costs little beside reading its keys and values
PART_KEYS = 256
#: numbers of 16 bytes: Triton compiles a kernel anew for arrays that begin elsewhere (so parts have 8 numbers)
ALIGNED = 4

Ints = npt.NDArray[np.integer]
Upload: TypeAlias = "Callable[[Tensor], Tensor]"  # of a host tensor, to where the kernels compute


@dataclass(frozen=True)
class AttentionPlan:
    """Plan the programs of the attention kernel for one step, the same for all layers; arrays on the device.

    A *tile* is as many successive tokens of one sequence as fill `tile_rows`, with all `groups` query heads of one
    key/value head; a sequence's only new token has a tile of SINGLE_ROWS. A sequence whose new tokens are one tile, as
    in decode, has its keys split into *parts* at multiples of PART_KEYS, which are merged afterwards; longer ones have
    tiles enough. So what a token's programs are depends on its own sequence alone.

    With `ordered_keys` all tiles have `tile_rows` rows, and each program sums by parts of so many keys. Then a token's
    result does not depend on its tile either: it is the same alone and in a chunk.

    parts   int32 [N, 8]  the tile's first row in the batch, its tokens, the first one's position, where the sequence's
                          pages begin, the part's keys [begin, end), its first row of partial outputs (-1: the only
                          part), nothing; the first `singles` are of sequences with one new token
    merges  int32 [M, 4]  row in the batch, first row of partial outputs, distance to the next part's, number of parts;
                          none: nothing to merge
    limits  int32 [T]     the first key that each token does not see
    pages   int32 [P]     page numbers

    Partial outputs go to `scratch` (see `scratch_of_rows`), or to memory of the plan's own, so one layer after the
    other must compute by a plan.
    """

    parts: Tensor
    merges: Tensor
    limits: Tensor
    pages: Tensor
    singles: int
    partial_rows: int
    groups: int
    tile_rows: int = TILE_ROWS
    scratch: Tensor | None = None
    ordered_keys: int = 0
    _partials: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def tokens(self) -> int:
        """Return of how many tokens the plan is."""
        return len(self.limits)

    @cached_property
    def merged(self) -> int:
        """Return for how many tokens there are parts to merge."""
        return len(self.merges)

    @cached_property
    def launches(self) -> list[tuple[int, Tensor, int]]:
        """Return the parts that one launch takes each: how many, which, and the rows of their tiles."""
        single_rows = self.tile_rows if self.ordered_keys else SINGLE_ROWS
        singles = len(self.parts) if single_rows == self.tile_rows else self.singles
        split = ((self.parts[:singles], single_rows), (self.parts[singles:], self.tile_rows))
        return [(len(parts), parts, rows) for parts, rows in split if len(parts)]

    def partials(self, heads: int, head_dim: int) -> tuple[Tensor, Tensor]:
        """Return memory for partial outputs [rows, heads, head_dim] and log-sum-exps [rows, heads], float32.

        It is the same for all layers. Raises ValueError if `scratch` has less.
        """
        found = self._partials.get((heads, head_dim))
        if found is None:
            found = self._partials[heads, head_dim] = self._new_partials(heads, head_dim)
        return found

    def _new_partials(self, heads: int, head_dim: int) -> tuple[Tensor, Tensor]:
        outputs, needed = self.partial_rows * heads * head_dim, partial_floats(self.partial_rows, heads, head_dim)
        scratch = self.parts.new_empty(needed, dtype=torch.float32) if self.scratch is None else self.scratch
        if len(scratch) < needed:
            raise ValueError(f"partial outputs take {needed} numbers, but the plan's scratch has {len(scratch)}")
        return scratch[:outputs], scratch[outputs:needed]

    @staticmethod
    def of_batch(
        batch: RaggedBatch,
        groups: int,
        upload: Upload,
        tile_rows: int = TILE_ROWS,
        part_keys: int = PART_KEYS,
        *,
        in_order: bool = False,
    ) -> AttentionPlan:
        """Plan self-attention of a batch, whose arrays are in host memory; sequences may have no rows in it."""
        rows, kv_lens = batch.qo_indptr.numpy(), batch.kv_lens.numpy()
        counts = np.diff(rows)
        limits = np.repeat(kv_lens - counts, counts) + _within(counts) + 1
        for sequence, own in enumerate(batch.limits):
            if own is not None:
                limits[rows[sequence] : rows[sequence + 1]] = own.numpy()
        first_pages = batch.kv_page_indptr.numpy()[:-1]
        pages = batch.kv_page_indices.numpy()
        plan = _plan(counts, kv_lens, first_pages, limits, pages, groups, upload, tile_rows, part_keys)
        return replace(plan, ordered_keys=part_keys) if in_order else plan

    @staticmethod
    def of_rows(
        lengths: Tensor,
        table: Tensor,
        context: int,
        groups: int,
        scratch: Tensor | None = None,
        *,
        in_order: bool = False,
    ) -> AttentionPlan:
        """Plan one new token a row, the last of `lengths` int32 [R]. Only their device works.

        table: int32 [R, P], contiguous. Each row has programs for all parts of `context` tokens, of which those beyond
        its length do nothing; the others are what `of_batch` plans. A length of 0 is no sequence.
        """
        parts = parts_of(context)
        rows = torch.arange(len(lengths), dtype=torch.int32, device=lengths.device)
        part = torch.arange(parts, dtype=torch.int32, device=lengths.device)
        split = (lengths + (PART_KEYS - 1)) // PART_KEYS
        several = (split > 1)[:, None]
        begin = (part * PART_KEYS).expand(len(rows), parts)
        end = torch.minimum(begin + PART_KEYS, torch.maximum(lengths[:, None], begin))
        columns = (
            rows[:, None],
            (part < split[:, None]).int(),
            (lengths - 1)[:, None],
            (rows * table.shape[1])[:, None],
            begin,
            end,
            torch.where(several, rows[:, None] * parts + part, -1),
            torch.zeros_like(begin),
        )
        merged = torch.where(split > 1, split, 0)
        return AttentionPlan(
            parts=torch.stack([column.expand(begin.shape) for column in columns], -1).view(-1, 8),
            merges=torch.stack([rows, rows * parts, torch.ones_like(rows), merged], -1),
            limits=lengths,
            pages=table.view(-1),
            singles=len(rows) * parts,
            partial_rows=len(rows) * parts,
            groups=groups,
            scratch=scratch,
            ordered_keys=PART_KEYS if in_order else 0,
        )

    @staticmethod
    def of_spans(spans: Sequence[CrossSpan], groups: int, upload: Upload, tile_rows: int = TILE_ROWS) -> AttentionPlan:
        """Plan cross-attention: each span is a sequence all of whose keys are seen, and each key is a page."""
        counts = np.array([span.last - span.first for span in spans])
        lengths = np.array([len(span.rows) for span in spans])
        pages = np.concatenate([span.rows.numpy() for span in spans])
        firsts, limits = np.cumsum(lengths) - lengths, np.repeat(lengths, counts)
        return _plan(counts, lengths, firsts, limits, pages, groups, upload, tile_rows)


def tokens_of_tile(groups: int, tile_rows: int = TILE_ROWS) -> int:
    """Return how many tokens a tile takes. So many query heads share a key/value head."""
    return max(1, tile_rows // groups)


def parts_of(context: int) -> int:
    """Return how many parts a row's keys are split into, for so many tokens."""
    return -(-context // PART_KEYS)


def partial_floats(rows: int, heads: int, head_dim: int) -> int:
    """Return how many float32 so many rows of partial outputs take: what each head gives, and its log-sum-exp."""
    return rows * heads * (head_dim + 1)


def scratch_of_rows(rows: int, context: int, heads: int, head_dim: int) -> int:
    """Return how many float32 the partial outputs of `of_rows` take at most."""
    return partial_floats(rows * parts_of(context), heads, head_dim)


def _plan(
    counts: Ints,
    kv_lens: Ints,
    first_pages: Ints,
    limits: Ints,
    pages: Ints,
    groups: int,
    upload: Upload,
    tile_rows: int,
    part_keys: int = PART_KEYS,
) -> AttentionPlan:
    """Plan sequences of so many new tokens back to back, the last of `kv_lens` ones."""
    size = tokens_of_tile(groups, tile_rows)
    tiles = -(-counts // size)
    sequence = np.repeat(np.arange(len(counts)), tiles)
    done = _within(tiles) * size
    first = (np.cumsum(counts) - counts)[sequence] + done
    tokens = np.minimum(counts[sequence] - done, size)
    end = np.maximum.reduceat(limits, first) if len(first) else first
    split = np.where(tiles[sequence] == 1, np.maximum(-(-end // part_keys), 1), 1)
    rows = np.where(split > 1, split * tokens, 0)
    base = np.cumsum(rows) - rows

    tile, part = np.repeat(np.arange(len(first)), split), _within(split)
    whole = split[tile] == 1
    parts = (
        first[tile],
        tokens[tile],
        (kv_lens - counts)[sequence[tile]] + done[tile],
        first_pages[sequence[tile]],
        part * part_keys,
        np.where(whole, end[tile], np.minimum((part + 1) * part_keys, end[tile])),
        np.where(whole, -1, base[tile] + part * tokens[tile]),
        np.zeros_like(part),
    )
    single = counts[sequence[tile]] == 1
    merged = tokens * (split > 1)
    tile, token = np.repeat(np.arange(len(first)), merged), _within(merged)
    merges = (first[tile] + token, base[tile] + token, tokens[tile], split[tile])

    ordered = np.argsort(~single, kind="stable")
    arrays = np.stack(parts, axis=1)[ordered], np.stack(merges, axis=1), limits, pages
    return AttentionPlan(*_uploaded(arrays, upload), int(single.sum()), int(rows.sum()), groups, tile_rows)


def _uploaded(arrays: tuple[Ints, Ints, Ints, Ints], upload: Upload) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return arrays as int32 on the device, by one copy of all."""
    starts = np.cumsum([0, *(-(-array.size // ALIGNED) * ALIGNED for array in arrays)])
    host = np.zeros(starts[-1], np.int32)
    for array, start in zip(arrays, starts, strict=False):
        host[start : start + array.size] = array.reshape(-1)
    there = upload(torch.from_numpy(host))
    views = [there[start : start + array.size].view(array.shape) for array, start in zip(arrays, starts, strict=False)]
    return views[0], views[1], views[2], views[3]


def _within(counts: Ints) -> Ints:
    """Return 0, 1 … count - 1 for each count, back to back."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
