"""Attention over the paged KV cache, and over paged visual tokens: what is to be computed, and how in plain torch."""

from unifiedserve.attention.base import CrossSpan, PagedKV, RaggedBatch, Span
from unifiedserve.attention.cross import cross_attention

__all__ = ["CrossSpan", "PagedKV", "RaggedBatch", "Span", "cross_attention"]
