"""A stand-in for FlashInfer 0.6.13 in plain torch, which computes from what it was told when it planned.

As in the original, the device takes a plan from host memory that the wrapper's next plan overwrites, keys and values
have the same strides, and partial outputs are of the queries' dtype and must fit into the workspace.
"""

import math
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor


class DeferredDevice:
    """What of a `Device` is needed; its work is done, in order, when it is waited for."""

    torch = torch.device("cpu")

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def upload(self, host: Tensor) -> Tensor:
        return host.clone()

    def fence(self) -> None:
        work, self.work = self.work, []
        for do in work:
            do()


class Plan(NamedTuple):
    """What a wrapper was told; kv_lens and part_keys are worked out as FlashInfer's scheduler does."""

    qo_indptr: Tensor
    kv_indptr: Tensor
    kv_indices: Tensor
    kv_lens: list[int]
    heads: tuple[int, int, int]
    page_size: int
    causal: bool
    scale: float
    window_left: int
    cap: float
    part_keys: int
    split: bool


class StandIn:
    """The module and what its wrappers were asked to do."""

    def __init__(self, device: DeferredDevice) -> None:
        self.device = device
        self.workspaces: list[Tensor] = []
        self.plans: list[Plan] = []
        stand_in = self

        class BatchPrefillWithPagedKVCacheWrapper(Wrapper):
            owner = stand_in

        self.module = ModuleType("flashinfer")
        self.module.__spec__ = ModuleSpec("flashinfer", None)
        self.module.BatchPrefillWithPagedKVCacheWrapper = BatchPrefillWithPagedKVCacheWrapper  # type: ignore[attr-defined]


class Wrapper:
    """With the signatures of BatchPrefillWithPagedKVCacheWrapper; what is not used here must be left out."""

    owner: StandIn

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Any = None,
        paged_kv_indptr_buf: Any = None,
        paged_kv_indices_buf: Any = None,
        paged_kv_last_page_len_buf: Any = None,
        custom_mask_buf: Any = None,
        mask_indptr_buf: Any = None,
        backend: str = "auto",
        jit_args: Any = None,
        jit_kwargs: Any = None,
    ) -> None:
        assert (kv_layout, use_cuda_graph) == ("NHD", False)
        self._workspace = float_workspace_buffer
        self._backend = backend
        self._pinned: Plan | None = None
        self._on_device: Plan | None = None
        self.owner.workspaces.append(float_workspace_buffer)

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        custom_mask: Any = None,
        packed_custom_mask: Any = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: str | torch.dtype = "float16",
        kv_data_type: str | torch.dtype | None = None,
        o_data_type: str | torch.dtype | None = None,
        non_blocking: bool = True,
        prefix_len_ptr: Any = None,
        token_pos_in_items_ptr: Any = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: Any = None,
        seq_lens: Any = None,
        seq_lens_q: Any = None,
        block_tables: Any = None,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        assert fixed_split_size is None or self._backend == "fa2"
        arrays = qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len
        assert all(array.dtype == torch.int32 and array.device.type == "cpu" for array in arrays)
        assert head_dim_qk in (64, 128, 256)
        assert num_qo_heads % num_kv_heads == 0
        assert qo_indptr[0] == paged_kv_indptr[0] == 0
        assert paged_kv_indptr[-1] == len(paged_kv_indices)
        assert ((paged_kv_last_page_len >= 1) & (paged_kv_last_page_len <= page_size)).all()
        counts, pages = qo_indptr.diff().tolist(), paged_kv_indptr.diff().tolist()
        part_pages = fixed_split_size or max(1, sum(pages) // 8)  # its own choice depends on the batch
        tile = self._tile_rows(sum(counts) * num_qo_heads // num_kv_heads // len(counts), head_dim_qk)
        used = pages if window_left < 0 else [min(n, -(-(window_left + tile) // page_size)) for n in pages]
        parts = [1 if disable_split_kv else -(-n // part_pages) for n in used]
        tiles = sum(-(-n * num_qo_heads // num_kv_heads // tile) * m for n, m in zip(counts, parts, strict=True))
        if max(parts) > 1 and num_qo_heads * tiles * tile * (head_dim_qk + 1) * 4 > self._workspace.nbytes:
            raise RuntimeError("Buffer overflow when allocating memory for batch_prefill_tmp_v")
        self._dtype = q_data_type
        self._pinned = Plan(
            qo_indptr,
            paged_kv_indptr,
            paged_kv_indices,
            ((paged_kv_indptr.diff() - 1) * page_size + paged_kv_last_page_len).tolist(),
            (num_qo_heads, num_kv_heads, head_dim_qk),
            page_size,
            causal,
            head_dim_qk**-0.5 if sm_scale is None else sm_scale,
            window_left,
            logits_soft_cap or 0.0,
            part_pages * page_size,
            max(parts) > 1,
        )
        self.owner.plans.append(self._pinned)
        self.owner.device.work.append(self._copy)

    def run(
        self,
        q: Tensor,
        paged_kv_cache: tuple[Tensor, Tensor],
        *args: Any,
        q_scale: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        out: Tensor | None = None,
        lse: Any = None,
        return_lse: bool = False,
        enable_pdl: bool | None = None,
        window_left: int | None = None,
        sinks: Any = None,
        kv_cache_sf: Any = None,
        skip_softmax_threshold_scale_factor: float | None = None,
    ) -> Tensor:
        keys, values = paged_kv_cache
        assert self._pinned is not None
        assert self._pinned.heads == (q.shape[1], *keys.shape[2:])
        assert (len(q), keys.shape[1]) == (self._pinned.qo_indptr[-1], self._pinned.page_size)
        assert keys.stride() == values.stride()
        assert keys.stride(3) == q.stride(2) == 1
        assert q.dtype == keys.dtype == values.dtype == self._dtype
        out = torch.zeros_like(q) if out is None else out
        assert (out.shape, out.dtype, out.stride()) == (q.shape, q.dtype, q.stride())
        self.owner.device.work.append(lambda: self._compute(q, keys, values, out))
        return out

    @staticmethod
    def _tile_rows(packed: int, head_dim: int) -> int:
        """Rows of a tile, if a sequence has so many queries and heads on average."""
        return 128 if packed > 64 and head_dim < 256 else 64 if packed > 16 else 16

    def _copy(self) -> None:
        self._on_device = self._pinned

    def _compute(self, q: Tensor, keys: Tensor, values: Tensor, out: Tensor) -> None:
        plan = self._on_device
        assert plan is not None
        rows, pages = plan.qo_indptr.tolist(), plan.kv_indptr.tolist()
        for number, kv_len in enumerate(plan.kv_lens):
            tokens = torch.arange(kv_len)
            page = plan.kv_indices[pages[number] : pages[number + 1]][tokens // plan.page_size]
            k, v = (cache[page, tokens % plan.page_size].float() for cache in (keys, values))
            own = slice(rows[number], rows[number + 1])
            out[own] = attend(q[own].float(), k, v, plan, q.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, plan: Plan, dtype: torch.dtype) -> Tensor:
    """Attend from [n, q_heads, d] to keys [m, kv_heads, d], in parts that are rounded before they are merged."""
    groups = plan.heads[0] // plan.heads[1]
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    scores = torch.einsum("nhd,mhd->hnm", q, k) * plan.scale
    scores = plan.cap * (scores / plan.cap).tanh() if plan.cap > 0 else scores
    positions, tokens = torch.arange(len(k))[len(k) - len(q) :, None], torch.arange(len(k))
    seen = tokens <= positions if plan.causal else torch.ones(len(q), len(k), dtype=torch.bool)
    if plan.window_left >= 0:
        seen &= tokens >= positions - plan.window_left
    scores[:, ~seen] = -math.inf
    if not plan.split:
        return torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v).to(dtype)
    outs, sums = [], []
    for part, values in zip(scores.split(plan.part_keys, dim=2), v.split(plan.part_keys), strict=True):
        outs.append(torch.einsum("hnm,mhd->hnd", part.softmax(-1).nan_to_num(), values).to(dtype).float())
        sums.append(part.logsumexp(-1))
    weights = torch.stack(sums).softmax(0)
    return (torch.stack(outs) * weights[..., None]).sum(0).transpose(0, 1).to(dtype)
