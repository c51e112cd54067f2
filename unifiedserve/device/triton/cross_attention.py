"""Cross-attention over rows of keys and values that lie anywhere in a buffer: paged attention over pages of one row."""

from torch import Tensor

from unifiedserve.device.triton.attention_plan import AttentionPlan
from unifiedserve.device.triton.paged_attention import paged_attention


def cross_attention(q: Tensor, keys: Tensor, values: Tensor, plan: AttentionPlan, scale: float) -> Tensor:
    """Let every token of a span attend to all of the span's rows.

    q: [S, q_heads, head_dim], the spans' tokens back to back, contiguous; keys, values: [rows, kv_heads, head_dim],
    strided; `plan` is AttentionPlan.of_spans of these spans; returns [S, q_heads, head_dim]. Dtypes and errors are
    those of `paged_attention`.
    """
    return paged_attention(q, keys[:, None], values[:, None], plan, scale)
