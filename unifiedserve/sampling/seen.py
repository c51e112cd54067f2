"""Remember which tokens an answer has seen, for its repetition penalty: histories are long, and grow by one."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


class Seen:
    """Hold the distinct tokens of one growing text that are in a vocabulary of `vocab`; others have no logits."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._length = 0
        self._known: set[int] = set()
        self._tokens = torch.empty(0, dtype=torch.int64)

    def tokens(self, history: Sequence[int], further: Iterable[int] = ()) -> Tensor:
        """Return the distinct tokens of a text and some more, int64 [n]; the text begins with that of before."""
        new = self._new(history[self._length :])
        self._length = len(history)
        self._known.update(new)
        self._tokens = _joined(self._tokens, new)
        return _joined(self._tokens, self._new(further))

    def _new(self, tokens: Iterable[int]) -> list[int]:
        return [token for token in dict.fromkeys(tokens) if token < self._vocab and token not in self._known]


def _joined(tokens: Tensor, more: list[int]) -> Tensor:
    return torch.cat((tokens, torch.tensor(more, dtype=torch.int64))) if more else tokens
