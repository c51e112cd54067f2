"""Attention over the paged KV cache, and over paged visual tokens: what is to be computed, and how in plain torch."""

from unifiedserve.attention.base import PLAIN, CrossSpan, PagedKV, RaggedBatch, Scoring, Span
from unifiedserve.attention.cross import cross_attention

__all__ = ["PLAIN", "CrossSpan", "PagedKV", "RaggedBatch", "Scoring", "Span", "cross_attention"]
