"""Write texts of about so many tokens, for any tokenizer."""

import random

import httpx

_WORDS = 400  # whose tokens are counted
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


class Texts:
    """Write texts that do not begin alike, so that no cache helps. The same seed gives the same ones."""

    def __init__(self, word_tokens: float = 1.0, seed: int = 0) -> None:
        """Make texts of words that have so many tokens on average."""
        self._word_tokens = word_tokens
        self._choose = random.Random(seed)

    @classmethod
    async def of(cls, http: httpx.AsyncClient) -> "Texts":
        """Make texts for the tokenizer of a server."""
        sample = cls().text(_WORDS)
        answer = await http.post("/tokenize", json={"prompt": sample})
        return cls(answer.raise_for_status().json()["count"] / _WORDS)

    def text(self, tokens: int) -> str:
        """Return a text of about so many tokens, one word at least."""
        return " ".join(self._word() for _ in range(max(1, round(tokens / self._word_tokens))))

    def _word(self) -> str:
        choose = self._choose.choice
        return "".join(choose(_CONSONANTS) + choose(_VOWELS) for _ in range(2))
