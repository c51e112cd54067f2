"""Offer the kernels of this folder as a device's operators."""

from collections.abc import Callable, Sequence
from functools import cache

from torch import Tensor

from unifiedserve.attention import PLAIN, AttentionRules, CrossSpan, RaggedBatch
from unifiedserve.device.operators import PlannedAttention
from unifiedserve.device.triton.add_rms_norm import add_rms_norm
from unifiedserve.device.triton.attention_plan import AttentionPlan, Upload, scratch_of_rows
from unifiedserve.device.triton.paged_attention import paged_attention, shared_bytes, tile_rows
from unifiedserve.device.triton.rotate_heads import rotate_heads
from unifiedserve.device.triton.silu_mul import silu_mul
from unifiedserve.device.triton.store_kv import store_kv


class TritonAttention:
    """Attend by one kernel for prefill and decode."""

    scratch_of_rows = staticmethod(scratch_of_rows)

    def __init__(self, upload: Upload, *, in_order: bool = False) -> None:
        """Bring plans to the device by `upload`; `in_order` a token's result does not depend on its chunk."""
        self._upload, self._in_order = upload, in_order

    def of_batch(self, batch: RaggedBatch, groups: int) -> PlannedAttention:
        if self._in_order:
            plan = AttentionPlan.of_batch(batch, groups, self._upload, in_order=True)
            return _planned(lambda rows: plan)  # tiles of one size
        return _planned(lambda rows: AttentionPlan.of_batch(batch, groups, self._upload, rows))

    def of_rows(self, lengths: Tensor, table: Tensor, context: int, groups: int, scratch: Tensor) -> PlannedAttention:
        plan = AttentionPlan.of_rows(lengths, table, context, groups, scratch, in_order=self._in_order)
        return _planned(lambda rows: plan)  # tiles of one token

    def of_spans(self, spans: Sequence[CrossSpan], groups: int) -> PlannedAttention:
        return _planned(lambda rows: AttentionPlan.of_spans(spans, groups, self._upload, rows))


def _planned(plan: Callable[[int], AttentionPlan]) -> PlannedAttention:
    """Return attention by what `plan` makes for tiles of so many rows. The queries' type and width decide how many."""
    plan = cache(plan)

    def attend(q: Tensor, keys: Tensor, values: Tensor, scale: float, rules: AttentionRules = PLAIN) -> Tensor:
        rows = tile_rows(q.dtype, q.shape[2], shared_bytes(q.device))
        return paged_attention(q, keys, values, plan(rows), scale, rules)

    return attend


class TritonPointwise:
    """Compute `Pointwise` by a kernel each."""

    add_rms_norm = staticmethod(add_rms_norm)
    store_kv = staticmethod(store_kv)
    silu_mul = staticmethod(silu_mul)
    rotate_heads = staticmethod(rotate_heads)
