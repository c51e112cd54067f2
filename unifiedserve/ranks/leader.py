"""Rank 0's side: calls of the worker, as to a whole model, have all ranks take part."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from unifiedserve.attention import PagedKV, RaggedBatch
from unifiedserve.ranks.messages import Embed, GiveWay, Logits, Message, Step, to_bytes
from unifiedserve.ranks.model import PartOfModel


class OutOfStepError(Exception):
    """Signal ranks that no longer do the same: their results are wrong, and their processes must end."""


class Leader:
    """Lead a language model over all ranks.

    Where one fails, or does not come in time, its methods raise OutOfStepError.
    """

    def __init__(self, part: PartOfModel) -> None:
        self._part = part
        self._group = part.group
        self._gives_way = False

    def embed(self, token_ids: Tensor) -> Tensor:
        """Return the embeddings [n, hidden] of token ids int64 [n]."""
        with self._all_of_them(Embed(to_bytes(token_ids))):
            return self._part.embed(token_ids)

    def step(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: PagedKV) -> Tensor:
        """Run a step, as a `StepRunner`."""
        with self._all_of_them(Step.of(embeds.shape[1], positions, batch)):
            return self._part.step(embeds, positions, batch, kv)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits float32 [k, vocab] of hidden states [k, hidden]."""
        with self._all_of_them(Logits(len(hidden))):
            return self._part.logits(hidden)

    def give_way(self, giving: bool) -> None:
        """Have all ranks leave half of their cores to other processes, or use all."""
        if giving != self._gives_way:
            self._gives_way = giving
            with self._all_of_them(GiveWay(giving)):
                self._part.give_way(giving)

    @contextmanager
    def _all_of_them(self, message: Message) -> Iterator[None]:
        """Tell the others to do what this rank does in the block."""
        try:
            self._group.tell(message)
            yield
        except Exception as error:
            raise OutOfStepError(f"the ranks are out of step: {error}") from error


class SpreadEmbedding(nn.Module):
    """Embed with rows that are on several ranks."""

    def __init__(self, leader: Leader) -> None:
        super().__init__()
        self._leader = leader

    def forward(self, token_ids: Tensor) -> Tensor:
        """Return the rows [..., hidden] of token ids int64 [...]."""
        rows = self._leader.embed(token_ids.flatten())
        return rows.view(*token_ids.shape, -1)
