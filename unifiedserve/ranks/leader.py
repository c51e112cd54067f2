"""Rank 0's side: calls of the worker, as to a whole model, have all ranks take part."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count

from torch import Tensor, nn

from unifiedserve.attention import PagedKV, RaggedBatch
from unifiedserve.ranks.encoder import PartOfEncoder, Units
from unifiedserve.ranks.group import Group
from unifiedserve.ranks.messages import Drop, Embed, Encode, Encoded, GiveWay, Layer, Logits, Message, Step, to_bytes
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
        """Return the embeddings [n, hidden] of token ids int64 [n] in host memory."""
        with all_of_them(self._group, Embed(to_bytes(token_ids))):
            return self._part.embed(self._part.device.upload(token_ids))

    def step(self, embeds: Tensor, positions: Tensor, batch: RaggedBatch, kv: PagedKV) -> Tensor:
        """Run a step as a `StepRunner`, with `positions` in host memory."""
        with all_of_them(self._group, Step.of(embeds.shape[1], positions, batch)):
            return self._part.step(embeds, positions, batch, kv)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits float32 [k, vocab] of hidden states [k, hidden]."""
        with all_of_them(self._group, Logits(len(hidden))):
            return self._part.logits(hidden)

    def give_way(self, giving: bool) -> None:
        """Have all ranks leave half of their cores to other processes, or use all."""
        if giving != self._gives_way:
            self._gives_way = giving
            with all_of_them(self._group, GiveWay(giving)):
                self._part.give_way(giving)


class LeadingEncoder:
    """Run a vision encoder over all ranks. Raises OutOfStepError as `Leader` does."""

    def __init__(self, part: PartOfEncoder) -> None:
        self._part = part
        self._group = part.group
        self._numbers = count()

    def layers(self, patches: Tensor, units: Units) -> Generator[None, None, Tensor]:
        """Encode uint8 patches [N, row_bytes] of whole units into tokens [M, width], and yield before each layer."""
        number = next(self._numbers)
        with all_of_them(self._group, Encode(number, len(patches), patches.shape[1], list(units))):
            self._part.begin(number, patches, units)
        try:
            while (own := self._layer(number)) is None:
                yield
        except GeneratorExit:
            with all_of_them(self._group, Drop(number)):
                self._part.drop(number)
            raise
        with all_of_them(self._group, Encoded(number, own.shape[1])):
            return self._part.finish(number, own.shape[1])

    def _layer(self, number: int) -> Tensor | None:
        with all_of_them(self._group, Layer(number)):
            return self._part.layer(number)


@contextmanager
def all_of_them(group: Group, message: Message) -> Iterator[None]:
    """Tell the other ranks to do what this one does in the block. Raises OutOfStepError if one cannot."""
    try:
        group.tell(message)
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
