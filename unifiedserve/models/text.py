"""Turn text into a limited number of token ids. That there are more is found out before all of them are made.

A tokenizer takes minutes and gigabytes for tens of megabytes of text, whatever becomes of its tokens.
"""

import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from unifiedserve.messages.media import PromptError

NO_LIMIT = sys.maxsize
_USUAL = 4  # characters a token: a text with no more than so many of them is tokenised to see
_SLICE = 1 << 15  # characters
_SEAM = 8  # tokens by which two slices may differ from the text that they are, where no word is longer
_CERTAIN = 1.25  # times the limit, where words are


class TooLongError(PromptError):
    """Signal a prompt of more tokens than are allowed. `described` says of how many, or how many at least."""

    def __init__(self, tokens: int, *, counted: bool = False) -> None:
        self.described = str(tokens) if counted else f"at least {tokens}"
        super().__init__(f"the text has {self.described} tokens")


class TextEncoder:
    """Encode by a tokenizer of transformers, with limits."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str, limit: int = NO_LIMIT, *, special: bool = False) -> list[int]:
        """Return the token ids of a text. If `special`, they include the tokens that are put around it.

        Raises TooLongError for a text that would have far more than `limit` tokens; a few more may come out.
        """
        self.check([text], limit)
        return self._ids(text, special)

    def check(self, texts: Sequence[str], limit: int) -> None:
        """Raise TooLongError if texts have far more than `limit` tokens together. The work is in proportion to that."""
        characters = sum(map(len, texts))
        if characters <= limit:
            return
        if characters > limit * self._longest:
            raise TooLongError(-(-characters // self._longest))
        if characters > limit * _USUAL + _SLICE:
            self._count(texts, limit)

    def _count(self, texts: Iterable[str], limit: int) -> None:
        """Raise TooLongError when slices of the texts have too many tokens.

        The whole could not have as many if it were allowed.
        """
        counted = 0
        for text in texts:
            for start, end in pairwise([*range(0, len(text), _SLICE), len(text)]):
                counted += max(0, len(self._ids(text[start:end], False)) - _SEAM)
                if counted > limit * _CERTAIN:
                    raise TooLongError(limit + 1)

    @cached_property
    def _longest(self) -> int:
        """Return the characters of the longest token; a token of bytes has one character for each."""
        return max(map(len, self._tokenizer.get_vocab()))

    def _ids(self, text: str, special: bool) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=special)["input_ids"]
        return ids
