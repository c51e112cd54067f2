"""Attend over pages: the kernels where they know the type and no token sees later ones, plain torch else."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unifiedserve import _core
from unifiedserve.attention import PLAIN, AttentionRules, PagedKV, RaggedBatch, cross_attention, reference
from unifiedserve.attention.base import SequenceView
from unifiedserve.device.cpu.dtypes import KERNEL_DTYPES
from unifiedserve.device.cpu.processor import thread_pool


def native_batch(batch: RaggedBatch) -> _core.Batch:
    """Return a batch for the kernels, without a copy."""
    return _core.Batch(
        batch.qo_indptr, batch.kv_page_indptr, batch.kv_page_indices, batch.kv_lens, batch.slots, batch.wanted_indptr
    )


class CpuAttention:
    """Attend on the processor, as an `AttentionStep`."""

    def __init__(self, batch: RaggedBatch, kv: PagedKV) -> None:
        self._batch, self._kv = batch, kv
        self._page, self._offset = batch.slots // kv.page_size, batch.slots % kv.page_size
        self._seen_later = [sequence for sequence in batch.sequences if sequence.limits is not None]
        self._known = KERNEL_DTYPES if kv.scales is not None else KERNEL_DTYPES & {kv.pages.dtype}  # of queries
        if self._known:
            self._native_batch, self._native_kv = native_batch(batch), _core.KvCache(kv.pages, kv.scales)

    def attend(
        self, q: Tensor, k_new: Tensor, v_new: Tensor, layer: int, scale: float, rules: AttentionRules = PLAIN
    ) -> Tensor:
        self._store(k_new, v_new, layer)
        q = q.contiguous()
        out = torch.empty_like(q)
        sequences = self._batch.sequences
        if q.dtype in self._known:
            sinks = None if rules.sinks is None else rules.sinks.float()
            given = (scale, rules.window, rules.chunk, rules.cap, sinks)
            _core.attend(thread_pool(), layer, self._native_batch, self._native_kv, q, out, *given)
            sequences = self._seen_later
        self._attend_in_torch(q, out, layer, sequences, scale, rules)
        return out

    def attend_across(self, q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        return cross_attention(q, keys, values, self._batch.cross, scale)

    def _store(self, k_new: Tensor, v_new: Tensor, layer: int) -> None:
        if self._kv.scales is None:
            self._kv.k(layer)[self._page, self._offset] = k_new
            self._kv.v(layer)[self._page, self._offset] = v_new
        else:
            k_new, v_new = k_new.contiguous(), v_new.contiguous()
            _core.store_codes(thread_pool(), layer, self._native_batch, self._native_kv, k_new, v_new)

    def _attend_in_torch(
        self,
        q: Tensor,
        out: Tensor,
        layer: int,
        sequences: Sequence[SequenceView],
        scale: float,
        rules: AttentionRules,
    ) -> None:
        if self._kv.scales is None:
            reference.attend(q, out, self._kv.k(layer), self._kv.v(layer), sequences, scale, rules)
            return
        for sequence in sequences:
            codes, scales = self._kv.pages[sequence.pages, layer], self._kv.scales[sequence.pages, layer]
            keys, values = widened(codes, scales).unbind(1)
            own = sequence._replace(pages=torch.arange(len(sequence.pages)))
            reference.attend(q.float(), out, keys, values, [own], scale, rules)


def widened(codes: Tensor, scales: Tensor) -> Tensor:
    """Return what codes [..., page_size, kv_heads, head_dim] of scales [..., kv_heads, page_size] stand for."""
    return codes * scales.transpose(-1, -2).unsqueeze(-1)
