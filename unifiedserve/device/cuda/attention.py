"""Compute a step's attention on a GPU."""

from functools import cached_property
from typing import Protocol

from torch import Tensor

from unifiedserve.attention import PLAIN, AttentionRules, PagedKV, RaggedBatch
from unifiedserve.device.base import Device
from unifiedserve.device.operators import Attention, PlannedAttention


class StoredAttention(Protocol):
    """Attend over keys and values that are stored first."""

    @property
    def slots(self) -> Tensor:
        """Return int64 [T], on the device: where each new token's keys and values go; below 0: nowhere."""

    def attend_stored(self, q: Tensor, layer: int, scale: float) -> Tensor:
        """Attend within each sequence, q contiguous and the result [T, q_heads, head_dim]."""


class CudaAttention:
    """Attend as an `AttentionStep`.

    Plans are made once for each number of heads that share keys, and hold for all layers.
    """

    def __init__(self, batch: RaggedBatch, kv: PagedKV, device: Device, kernels: Attention) -> None:
        self._batch, self._kv = batch, kv
        self._device, self._kernels = device, kernels
        self._plans: dict[int, PlannedAttention] = {}
        self._plans_across: dict[int, PlannedAttention] = {}

    @cached_property
    def slots(self) -> Tensor:
        """Return int64 [T], on the device: where each new token's keys and values go."""
        return self._device.upload(self._batch.slots)

    def attend(
        self, q: Tensor, k_new: Tensor, v_new: Tensor, layer: int, scale: float, rules: AttentionRules = PLAIN
    ) -> Tensor:
        page, offset = self._places
        self._kv.k(layer)[page, offset] = k_new
        self._kv.v(layer)[page, offset] = v_new
        return self.attend_stored(q.contiguous(), layer, scale, rules)

    def attend_stored(self, q: Tensor, layer: int, scale: float, rules: AttentionRules = PLAIN) -> Tensor:
        """Attend within each sequence where the new tokens' keys and values are stored; q is contiguous."""
        keys, values = self._kv.k(layer), self._kv.v(layer)
        groups = q.shape[1] // keys.shape[2]
        if groups not in self._plans:
            self._plans[groups] = self._kernels.of_batch(self._batch, groups)
        return self._plans[groups](q, keys, values, scale, rules)

    def attend_across(self, q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        groups = q.shape[1] // keys.shape[1]
        if groups not in self._plans_across:
            self._plans_across[groups] = self._kernels.of_spans(self._batch.cross, groups)
        return self._plans_across[groups](q.contiguous(), keys[:, None], values[:, None], scale)

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor]:
        return self.slots // self._kv.page_size, self.slots % self._kv.page_size
