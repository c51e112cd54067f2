"""Attention over the paged KV cache."""

from unifiedserve.attention.base import RaggedBatch
from unifiedserve.attention.paged import paged_attention

__all__ = ["RaggedBatch", "paged_attention"]
