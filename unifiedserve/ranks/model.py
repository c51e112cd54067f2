"""Run one rank's part of a language model: all ranks call every method at once, in the same order."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from unifiedserve.attention import PagedKV, RaggedBatch
from unifiedserve.device import Device, Exchange, StepRunner
from unifiedserve.ranks.group import Group


class PartOfModel:
    """Run embedding, layers and head over a rank's part of their weights.

    It is a device's `DividedEnds`.
    """

    def __init__(
        self,
        group: Group,
        embedding: Any,
        runner: StepRunner,
        head: Callable[[Tensor], Tensor] | None,
        hidden: int,
        dtype: torch.dtype,
        device: Device,
    ) -> None:
        """Take modules over the rank's part; the runner sums up over the ranks by itself."""
        self.group = group
        self.hidden = hidden
        self.dtype = dtype
        self.device = device
        self._embedding = embedding
        self._runner = runner
        self._head = head

    @property
    def exchange(self) -> Exchange:
        return self.group.exchange

    @property
    def width(self) -> int:
        """Return how many logits this rank has in the end: all, or those of the largest part."""
        sizes = self.group.part.vocabulary
        return sum(sizes) if self.group.leads else max(sizes)

    def empty(self, rows: int, width: int) -> Tensor:
        """Return room on the device for what the first rank has: [rows, width]."""
        return torch.empty(rows, width, dtype=self.dtype, device=self.device.torch)

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return the embeddings [n, hidden] of token ids [n] on the device: a sum in which one rank has each row."""
        tokens = self.group.part.tokens
        elsewhere = (token_ids < tokens.start) | (token_ids >= tokens.stop)
        rows: Tensor = self._embedding((token_ids - tokens.start).masked_fill_(elsewhere, 0))
        rows.masked_fill_(elsewhere[:, None], 0)
        self.exchange.all_reduce(rows)
        return rows

    def step(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: PagedKV) -> Tensor:
        """Run a step as a `StepRunner`, with `positions` in host memory.

        `embeds` [T, width] of other ranks than the first are overwritten.
        """
        embeds = embeds.contiguous()
        self.exchange.broadcast(embeds)
        hidden = self._runner(embeds, self.device.upload(positions), batch, kv)
        if not len(hidden) and self.device.apart:
            # sums of no rows wait for nobody: this one tells that all have stored their keys and values
            self.exchange.all_reduce(self.empty(1, 1))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Return float32 logits [k, vocab] of [k, hidden], valid until the next call; nothing but rank 0's count.

        `hidden` of other ranks is overwritten.
        """
        hidden = hidden.contiguous()
        self.exchange.broadcast(hidden)
        return self.logits_of(hidden)

    def logits_of(self, hidden: Tensor) -> Tensor:
        """Return what `logits` does, where all ranks have the same `hidden`."""
        if self._head is None:
            raise TypeError("a model that makes embeddings has no logits")
        own, sizes = self._head(hidden), self.group.part.vocabulary
        if len(sizes) == 1:
            return own
        if missing := max(sizes) - own.shape[1]:  # a pad of nothing would copy
            own = functional.pad(own, (0, missing))
        own = own.contiguous()
        if not self.group.leads:
            self.exchange.gather(own, None)
            return own
        every = own.new_empty(len(sizes), *own.shape)
        self.exchange.gather(own, every)
        return torch.cat([part[:, :size] for part, size in zip(every, sizes, strict=True)], dim=1)

    def give_way(self, giving: bool) -> None:
        """Leave half of this rank's cores to other processes, or use all."""
        self.device.sharing.give_way(giving)
