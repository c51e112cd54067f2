"""Attention over the paged KV cache, and over paged visual tokens."""

from unifiedserve.attention.base import CrossSpan, RaggedBatch
from unifiedserve.attention.cpu import cpu_features, slowness
from unifiedserve.attention.cross import cross_attention
from unifiedserve.attention.paged import paged_attention

__all__ = ["CrossSpan", "RaggedBatch", "cpu_features", "cross_attention", "paged_attention", "slowness"]
