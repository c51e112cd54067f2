"""The kernels of this folder, as a device's operators."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unifiedserve.attention import CrossSpan, RaggedBatch
from unifiedserve.device.cuda.operators import PlannedAttention
from unifiedserve.device.triton.add_rms_norm import add_rms_norm
from unifiedserve.device.triton.attention_plan import AttentionPlan
from unifiedserve.device.triton.paged_attention import paged_attention
from unifiedserve.device.triton.silu_mul import silu_mul
from unifiedserve.device.triton.store_kv import store_kv


class TritonAttention:
    """`Attention` by one kernel for prefill and decode."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def of_batch(self, batch: RaggedBatch, groups: int) -> PlannedAttention:
        return _planned(AttentionPlan.of_batch(batch, groups, self._device))

    def of_rows(self, lengths: Tensor, table: Tensor, context: int, groups: int) -> PlannedAttention:
        return _planned(AttentionPlan.of_rows(lengths, table, context, groups))

    def of_spans(self, spans: Sequence[CrossSpan], groups: int) -> PlannedAttention:
        return _planned(AttentionPlan.of_spans(spans, groups, self._device))


def _planned(plan: AttentionPlan) -> PlannedAttention:
    def attend(q: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None = None) -> Tensor:
        return paged_attention(q, keys, values, plan, scale, window)

    return attend


class TritonPointwise:
    """`Pointwise` by a kernel each."""

    add_rms_norm = staticmethod(add_rms_norm)
    store_kv = staticmethod(store_kv)
    silu_mul = staticmethod(silu_mul)
