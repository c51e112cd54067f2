"""Attend over the paged KV cache and paged visual tokens: what is computed, and how in plain torch."""

from unifiedserve.attention.base import PLAIN, AttentionRules, CrossSpan, PagedKV, RaggedBatch, Span
from unifiedserve.attention.cross import cross_attention

__all__ = ["PLAIN", "AttentionRules", "CrossSpan", "PagedKV", "RaggedBatch", "Span", "cross_attention"]
