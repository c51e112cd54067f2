"""Attention over the paged KV cache."""

from unifiedserve.attention.base import RaggedBatch
from unifiedserve.attention.cpu import cpu_features, slowness
from unifiedserve.attention.paged import paged_attention

__all__ = ["RaggedBatch", "cpu_features", "paged_attention", "slowness"]
