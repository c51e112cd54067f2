"""Questions of an exact length in tokens; no two begin alike, so that no server can reuse the work for another."""

import copy
import random
from pathlib import Path
from typing import Any

from unifiedserve.models.hub import load_transformers


class Prompts:
    """A source of questions; the same seed gives the same ones in the same order."""

    def __init__(self, checkpoint: Path, seed: int = 0) -> None:
        self._tokenizer: Any = load_transformers().AutoTokenizer.from_pretrained(checkpoint)
        self._words = sorted(
            token[1:] for token in self._tokenizer.get_vocab() if token.startswith("Ġ") and token[1:].isalpha()
        )
        self._choose = random.Random(seed)
        self._around = self._length("")

    def branch(self) -> "Prompts":
        """Return a source of other questions: however many are taken of it, those of this one stay the same."""
        other = copy.copy(self)
        other._choose = random.Random(self._choose.getrandbits(64))
        return other

    def text(self, tokens: int) -> str:
        """Make a question whose prompt, chat template included, has this many tokens."""
        question = "".join(f" {word}" for word in self._choose.choices(self._words, k=tokens - self._around))
        if self._length(question) != tokens:
            raise ValueError(f"{question!r} has {self._length(question)} tokens instead of {tokens}")
        return question

    def _length(self, question: str) -> int:
        messages = [{"role": "user", "content": question}]
        ids = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        return len(ids)
