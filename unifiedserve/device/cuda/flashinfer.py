"""Attend by FlashInfer, where its package is installed.

It compiles a kernel when a model first needs it, with nvcc and for about half a minute: one for a dtype, a head size,
and windows and soft caps or none. It looks for compiled ones in its folder `data/aot`, in the package
`flashinfer-jit-cache`, and in `~/.cache/flashinfer`, where it leaves its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unifiedserve.attention import PLAIN, AttentionRules, CrossSpan, RaggedBatch
from unifiedserve.device.base import Device
from unifiedserve.device.operators import Attention, PlannedAttention

DTYPES = frozenset({torch.bfloat16, torch.float16})
HEAD_DIMS = frozenset({64, 128, 256})
#: keys of a part of a context: partial outputs then take about a hundredth of the bytes of the keys and values
PART_KEYS = 512
#: what FlashInfer recommends
WORKSPACE_BYTES = 128 << 20


class FlashInferAttention:
    """Attend by FlashInfer's kernels for tensor cores. Plans of a step hold until the next step's are asked for.

    `fallback` does the rest: dtypes but DTYPES, head sizes but HEAD_DIMS, tokens that see later ones, chunks, sinks,
    attention across, and plans that are made on the device.
    """

    def __init__(self, device: Device, fallback: Attention) -> None:
        self._device, self._fallback = device, fallback
        self._wrappers = _Wrappers(device)

    def of_batch(self, batch: RaggedBatch, groups: int) -> PlannedAttention:
        if any(limits is not None for limits in batch.limits):
            return self._fallback.of_batch(batch, groups)
        self._device.fence()  # a wrapper's next plan overwrites the host memory that its last one is copied from
        return _StepAttention(batch, groups, self._wrappers, self._fallback)

    def of_rows(self, lengths: Tensor, table: Tensor, context: int, groups: int, scratch: Tensor) -> PlannedAttention:
        return self._fallback.of_rows(lengths, table, context, groups, scratch)

    def scratch_of_rows(self, rows: int, context: int, heads: int, head_dim: int) -> int:
        return self._fallback.scratch_of_rows(rows, context, heads, head_dim)

    def of_spans(self, spans: Sequence[CrossSpan], groups: int) -> PlannedAttention:
        return self._fallback.of_spans(spans, groups)


class _Shape(NamedTuple):
    """Hold what a plan depends on beside the batch: layers of one shape share it."""

    q_heads: int
    kv_heads: int
    head_dim: int
    page_size: int
    dtype: torch.dtype
    scale: float
    window: int | None
    cap: float | None

    @property
    def part_pages(self) -> int:
        return max(1, PART_KEYS // self.page_size)


@dataclass(frozen=True)
class _Sequences:
    """List successive sequences of a batch, in host memory. `rows` are their queries in it.

    Contexts are `split` into parts of PART_KEYS, or not at all: FlashInfer's own choice would depend on the batch.
    """

    rows: slice
    qo_indptr: Tensor
    page_indptr: Tensor
    pages: Tensor
    kv_lens: Tensor
    split: bool

    @staticmethod
    def of(batch: RaggedBatch, first: int, last: int, split: bool) -> "_Sequences":
        rows, pages = batch.qo_indptr[first : last + 1], batch.kv_page_indptr[first : last + 1]
        return _Sequences(
            rows=slice(int(rows[0]), int(rows[-1])),
            qo_indptr=rows - rows[0],
            page_indptr=pages - pages[0],
            pages=batch.kv_page_indices[pages[0] : pages[-1]],
            kv_lens=batch.kv_lens[first:last],
            split=split,
        )

    def workspace_bytes(self, shape: _Shape) -> int:
        """Return at least what FlashInfer takes for the parts' outputs and sums.

        They are float32, of one new token each.
        """
        if not self.split:
            return 0
        parts = int((self.page_indptr.diff() + shape.part_pages - 1).floor_divide(shape.part_pages).sum())
        groups = shape.q_heads // shape.kv_heads
        tile_rows = 16 if groups <= 16 else -(-groups // 128) * 128
        return parts * shape.q_heads * tile_rows * (shape.head_dim + 1) * 4 + 32


class _Wrappers:
    """Hold FlashInfer's wrappers, one for each shape of plan. They share the workspace on the device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._make = import_module("flashinfer").BatchPrefillWithPagedKVCacheWrapper
        self._made: dict[tuple[_Shape, bool], Any] = {}
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device.torch)

    def plan(self, sequences: _Sequences, shape: _Shape) -> Any:
        """Return the wrapper of the shape, planned again."""
        self._reserve(sequences.workspace_bytes(shape))
        key = shape, sequences.split
        if key not in self._made:
            self._made[key] = self._make(self._workspace, "NHD", backend="fa2")  # fa3 has no fixed split
        wrapper = self._made[key]
        wrapper.plan(
            sequences.qo_indptr,
            sequences.page_indptr,
            sequences.pages,
            (sequences.kv_lens - 1) % shape.page_size + 1,
            shape.q_heads,
            shape.kv_heads,
            shape.head_dim,
            shape.page_size,
            causal=True,
            sm_scale=shape.scale,
            window_left=-1 if shape.window is None else shape.window - 1,
            logits_soft_cap=shape.cap,
            q_data_type=shape.dtype,
            fixed_split_size=shape.part_pages if sequences.split else None,
            disable_split_kv=not sequences.split,
        )
        return wrapper

    def _reserve(self, size: int) -> None:
        if size > len(self._workspace):
            self._device.fence()  # memory of wrappers that are given up may still be copied from
            self._made.clear()
            size = max(size, 2 * len(self._workspace))
            self._workspace = torch.empty(size, dtype=torch.uint8, device=self._device.torch)


class _StepAttention:
    """Plan when the first layer of a shape is computed, as a `PlannedAttention`.

    Tokens that decode come first in a step, each alone. Planned apart from prompts' chunks, they get smaller tiles, and
    what is computed for one does not depend on what else is in the batch.
    """

    def __init__(self, batch: RaggedBatch, groups: int, wrappers: _Wrappers, fallback: Attention) -> None:
        self._batch, self._groups = batch, groups
        self._wrappers, self._fallback = wrappers, fallback
        alone = int((batch.qo_indptr.diff() == 1).cumprod(0).sum())
        parts = _Sequences.of(batch, 0, alone, True), _Sequences.of(batch, alone, len(batch.kv_lens), False)
        self._parts = [part for part in parts if part.rows.start < part.rows.stop]
        self._plans: dict[_Shape, list[Any]] = {}

    def __call__(self, q: Tensor, keys: Tensor, values: Tensor, scale: float, rules: AttentionRules = PLAIN) -> Tensor:
        page_size, kv_heads, head_dim = keys.shape[1:]
        lacking = rules.chunk is not None or rules.sinks is not None
        if q.dtype not in DTYPES or head_dim not in HEAD_DIMS or lacking:
            return self._other(q, keys, values, scale, rules)
        shape = _Shape(q.shape[1], kv_heads, head_dim, page_size, q.dtype, scale, rules.window, rules.cap)
        if shape not in self._plans:
            self._plans[shape] = [self._wrappers.plan(part, shape) for part in self._parts]
        out = torch.empty_like(q)
        for part, wrapper in zip(self._parts, self._plans[shape], strict=True):
            wrapper.run(q[part.rows], (keys, values), out=out[part.rows])
        return out

    @cached_property
    def _other(self) -> PlannedAttention:
        return self._fallback.of_batch(self._batch, self._groups)
