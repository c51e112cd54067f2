"""Paged attention: the kernels where they know the type and no token sees later ones, plain torch else."""

import torch
from torch import Tensor

from unifiedserve import _core
from unifiedserve.attention import PagedKV, RaggedBatch, cross_attention, reference
from unifiedserve.device.cpu.processor import KERNEL_DTYPES, thread_pool


def native_batch(batch: RaggedBatch) -> _core.Batch:
    """Return a batch for the kernels, without a copy."""
    return _core.Batch(
        batch.qo_indptr, batch.kv_page_indptr, batch.kv_page_indices, batch.kv_lens, batch.slots, batch.wanted_indptr
    )


class CpuAttention:
    """An `AttentionStep` on the processor."""

    def __init__(self, batch: RaggedBatch, kv: PagedKV) -> None:
        self._batch, self._kv = batch, kv
        self._page, self._offset = batch.slots // kv.page_size, batch.slots % kv.page_size
        self._seen_later = [sequence for sequence in batch.sequences if sequence.limits is not None]
        if kv.pages.dtype in KERNEL_DTYPES:
            self._native_batch, self._native_kv = native_batch(batch), _core.KvCache(kv.pages)

    def attend(
        self, q: Tensor, k_new: Tensor, v_new: Tensor, layer: int, scale: float, window: int | None = None
    ) -> Tensor:
        keys, values = self._kv.k(layer), self._kv.v(layer)
        keys[self._page, self._offset] = k_new
        values[self._page, self._offset] = v_new
        q = q.contiguous()
        out = torch.empty_like(q)
        sequences = self._batch.sequences
        if q.dtype == keys.dtype and keys.dtype in KERNEL_DTYPES:
            _core.attend(thread_pool(), layer, self._native_batch, self._native_kv, q, out, scale, window)
            sequences = self._seen_later
        reference.attend(q, out, keys, values, sequences, scale, window)
        return out

    def attend_across(self, q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        return cross_attention(q, keys, values, self._batch.cross, scale)
