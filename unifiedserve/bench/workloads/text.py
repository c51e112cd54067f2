"""Write texts of a given number of tokens, no two of which begin alike."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from unifiedserve.bench.arrivals.seeds import stream
from unifiedserve.errors import ConfigError

# Common words, each of them, with the space before it, a token of most vocabularies of 30,000 and more.
WORDS = (Path(__file__).parent / "words.txt").read_text().split()

_ATTEMPTS = 4


class Vocabulary(Protocol):
    """Count the tokens of a text."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""


class Estimate:
    """Count a token a word: what most vocabularies make of `WORDS`, without any of them."""

    def count(self, text: str) -> int:
        return len(text.split())


class Tokenizer:
    """Count by a model's tokenizer.json. Raises ConfigError if it cannot be read, or `tokenizers` is not installed."""

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer as Encoder
        except ImportError:
            raise ConfigError(f"{path} needs the package tokenizers: pip install tokenizers") from None
        try:
            self._encoder = Encoder.from_str(path.read_text())
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from None
        except Exception as error:  # it raises nothing narrower
            raise ConfigError(f"{path}: no tokenizer.json: {error}") from None

    def count(self, text: str) -> int:
        return len(self._encoder.encode(text, add_special_tokens=False).ids)


class Writer:
    """Write texts. The same vocabulary, seed, number and length give the same text."""

    def __init__(self, vocabulary: Vocabulary, seed: int) -> None:
        self._vocabulary = vocabulary
        self._seed = seed
        self._words = [f" {word}" for word in stream(seed, "words").permutation(WORDS).tolist()]
        self._tokens = {word: vocabulary.count(word) for word in self._words}
        self._short = [word for word in self._words if self._tokens[word] == min(self._tokens.values())]

    def text(self, number: int, tokens: int) -> str:
        """Return so many tokens that begin with the number, spelled in words: no other number's text begins so."""
        return self._exactly(number, tokens, "text")

    def blocks(self, ids: Sequence[int], size: int, tokens: int) -> str:
        """Return so many tokens in pieces of `size`, each the same wherever its id occurs; the last may be shorter."""
        lengths = [min(size, tokens - start) for start in range(0, tokens, size)]
        pieces = zip(ids, lengths, strict=False)  # more ids are of no matter
        return " ".join(self._exactly(id, length, "block", between=bool(at)) for at, (id, length) in enumerate(pieces))

    def _exactly(self, number: int, tokens: int, purpose: str, between: bool = False) -> str:
        """Return the closest of a few attempts. Each makes up for what the one before had too much.

        `between` other words its first one has a space before it.
        """
        attempts: list[tuple[int, str]] = []
        aim = tokens
        for _ in range(_ATTEMPTS):
            text = self._fill(number, aim, stream(self._seed, purpose, number))
            over = self._vocabulary.count(f" {text}" if between else text) - tokens
            attempts.append((abs(over), text))
            if not over:
                break
            aim = max(1, aim - over)
        return min(attempts)[1]

    def _fill(self, number: int, tokens: int, rng: np.random.Generator) -> str:
        """Return at least one word, with so many tokens when counted one by one."""
        left, text = tokens, []
        for word in itertools.chain(self._spell(number), self._draw(rng)):
            if self._tokens[word] > left:
                word = self._short[int(rng.integers(len(self._short)))]
            text.append(word)
            left -= self._tokens[word]
            if left <= 0:
                return "".join(text)[1:]
        raise AssertionError("words are drawn without end")

    def _draw(self, rng: np.random.Generator) -> Iterator[str]:
        while True:
            yield from (self._words[index] for index in rng.integers(len(self._words), size=256).tolist())

    def _spell(self, number: int) -> list[str]:
        """Return a number's digits, each a word; at least two, the lowest first."""
        digits: list[int] = []
        while number or len(digits) < 2:
            number, digit = divmod(number, len(self._words))
            digits.append(digit)
        return [self._words[digit] for digit in digits]
