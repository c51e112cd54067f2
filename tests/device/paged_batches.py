"""Random ragged batches over a cache that holds NaN wherever no token's keys and values lie."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.attention import PLAIN, AttentionRules, RaggedBatch, reference
from unifiedserve.attention.base import Span


def uploading_to(device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return what brings a host tensor to a device."""
    return lambda host: host.to(device)


class Sizes(NamedTuple):
    q_heads: int
    kv_heads: int
    head_dim: int
    page_size: int


class Case(NamedTuple):
    """Queries of all sequences, and a layer of the cache: [num_pages, page_size, kv_heads, head_dim], strided."""

    spans: list[Span]
    q: Tensor
    keys: Tensor
    values: Tensor

    def batch(self, *chosen: int) -> RaggedBatch:
        spans = [self.spans[number] for number in chosen] if chosen else self.spans
        return RaggedBatch.build(spans, self.keys.shape[1])

    def rows(self, number: int) -> slice:
        """Return where a sequence's queries are."""
        first = sum(span.stop - span.start for span in self.spans[:number])
        return slice(first, first + self.spans[number].stop - self.spans[number].start)

    def expected(self, scale: float, rules: AttentionRules = PLAIN) -> Tensor:
        """Return what plain torch computes, in float32."""
        out = torch.empty(self.q.shape)
        keys, values = self.keys.float(), self.values.float()
        reference.attend(self.q.float(), out, keys, values, self.batch().sequences, scale, rules)
        return out


def poisoned_cache(pages: int, sizes: Sizes, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return keys and values of the second layer of a cache that is NaN everywhere."""
    shape = (pages, 2, 2, sizes.page_size, sizes.kv_heads, sizes.head_dim)
    cache = torch.full(shape, torch.nan, dtype=dtype)
    return cache[:, 1, 0], cache[:, 1, 1]


def random_case(
    lengths: list[tuple[int, int]], limited: list[bool], sizes: Sizes, dtype: torch.dtype, random: torch.Generator
) -> Case:
    """Make sequences of (past, new) tokens; those that are `limited` have new tokens that see later ones."""
    needed = [-(-(past + new) // sizes.page_size) for past, new in lengths]
    keys, values = poisoned_cache(sum(needed) + 2, sizes, dtype)
    order = torch.randperm(sum(needed) + 2, generator=random).tolist()
    spans = []
    for (past, new), count, has_limits in zip(lengths, needed, limited, strict=False):
        pages, order = order[:count], order[count:]
        tokens = torch.arange(past + new)
        page, offset = torch.tensor(pages)[tokens // sizes.page_size], tokens % sizes.page_size
        for cache in (keys, values):
            cache[page, offset] = torch.randn(past + new, *cache.shape[2:], generator=random).to(dtype)
        limits = some_limits(past, new, random) if has_limits else None
        spans.append(Span(pages, past, past + new, None, limits))
    rows = sum(new for _, new in lengths)
    q = torch.randn(rows, sizes.q_heads, sizes.head_dim, generator=random).to(dtype)
    return Case(spans, q, keys, values)


def some_limits(past: int, new: int, random: torch.Generator) -> Tensor:
    """Return what new tokens see of which each is alone, or in a block with those behind it."""
    ends = torch.rand(new, generator=random) < 0.2
    ends[-1] = True
    blocks = torch.where(ends, torch.arange(new) + 1, new)
    return past + blocks.flip(0).cummin(0).values.flip(0)
