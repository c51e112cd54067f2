"""Run one rank's part of a language model: all ranks call every method at once, in the same order."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from unifiedserve.attention import PagedKV, RaggedBatch
from unifiedserve.device import StepRunner
from unifiedserve.ranks.group import Group


class PartOfModel:
    """Run embedding, layers and head over a rank's part of their weights."""

    def __init__(
        self,
        group: Group,
        embedding: Any,
        runner: StepRunner,
        head: Callable[[Tensor], Tensor] | None,
        hidden: int,
        dtype: torch.dtype,
        give_way: Callable[[bool], None],
    ) -> None:
        """Take modules over the rank's part; the runner sums up over the group by itself.

        `give_way` is called in each process when the model is to leave cores to others, or has all again.
        """
        self.group = group
        self.hidden = hidden
        self.dtype = dtype
        self.give_way = give_way
        self._embedding = embedding
        self._runner = runner
        self._head = head

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return the embeddings [n, hidden] of token ids int64 [n]: a sum in which one rank has each row."""
        tokens = self.group.part.tokens
        elsewhere = (token_ids < tokens.start) | (token_ids >= tokens.stop)
        rows: Tensor = self._embedding((token_ids - tokens.start).masked_fill_(elsewhere, 0))
        rows.masked_fill_(elsewhere[:, None], 0)
        self.group.all_reduce(rows)
        return rows

    def step(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: PagedKV) -> Tensor:
        """Run a step as a `StepRunner`; `embeds` [T, width] of other ranks than the first are overwritten."""
        embeds = embeds.contiguous()
        self.group.broadcast(embeds)
        return self._runner(embeds, positions, batch, kv)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits [k, vocab] of [k, hidden], valid until the next call; nothing but rank 0's count.

        `hidden` of other ranks is overwritten.
        """
        if self._head is None:
            raise TypeError("a model that makes embeddings has no logits")
        hidden = hidden.contiguous()
        self.group.broadcast(hidden)
        own, sizes = self._head(hidden), self.group.part.vocabulary
        own = functional.pad(own, (0, max(sizes) - own.shape[1])).contiguous()
        if not self.group.leads:
            self.group.gather(own, None)
            return own
        every = torch.empty(len(sizes), *own.shape)
        self.group.gather(own, every)
        return torch.cat([part[:, :size] for part, size in zip(every, sizes, strict=True)], dim=1)
