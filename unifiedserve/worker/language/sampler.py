"""The next token of each sequence: grammars, sampling, and the ends of answers."""

from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.messages.wire import Generation, Token
from unifiedserve.sampling.grammar import GrammarError, Grammars, Matcher
from unifiedserve.sampling.sample import Draw, SampledToken
from unifiedserve.worker.language.sequence import append_token

Key = tuple[int, int]


class Drawing(NamedTuple):
    """Tokens on their way, and why the grammars of some rows failed."""

    draw: Draw
    errors: dict[int, str]


class Sampler:
    """Samples tokens, within the grammar of those sequences that have one.

    A matcher is but a cache of what follows from the grammar and the tokens: one that is missing is made again.
    """

    def __init__(self, grammars: Grammars, eos_token_ids: tuple[int, ...]) -> None:
        self._grammars = grammars
        self._eos = eos_token_ids
        self._matchers: dict[Key, Matcher] = {}

    def next_tokens(self, sequences: list[Generation], logits: Tensor) -> list[Token]:
        """Sample from float32 logits [B, vocab] and append: one token a sequence, with what it means for the answer.

        A grammar that cannot go on makes its token one with an `error`, and leaves the others alone.
        """
        drawing = self.draw(sequences, logits, [s.num_generated for s in sequences])
        sampled = drawing.draw.finish(drawing.draw.tokens.tolist())
        return [self.append(s, sampled[row], drawing.errors.get(row)) for row, s in enumerate(sequences)]

    def draw(self, sequences: list[Generation], logits: Tensor, indices: list[int], *, keep: bool = False) -> Drawing:
        """Begin to draw each sequence's generated token of that number, the next one if its parameters `follow`."""
        allowed, errors = self._allowed(sequences, logits.shape[1])
        params, histories = [s.sampling for s in sequences], [s.token_ids for s in sequences]
        return Drawing(Draw(logits, params, histories, indices, self._eos, allowed, keep=keep), errors)

    def append(self, sequence: Generation, sampled: SampledToken, error: str | None = None) -> Token:
        """Add what was drawn to a sequence; an `error` ends it."""
        token = append_token(sequence, sampled, self._eos)
        if error:
            token.finish, token.error = "stop", error
        if token.finish:
            self.forget(sequence.key)
        return token

    def forget(self, key: Key) -> None:
        """Drop what is cached for a sequence that has ended here."""
        self._matchers.pop(key, None)

    def _allowed(self, sequences: list[Generation], vocabulary: int) -> tuple[dict[int, Tensor], dict[int, str]]:
        """Return bool [vocabulary] of each row that has a grammar; and why the grammars of others failed, by row."""
        allowed: dict[int, Tensor] = {}
        errors: dict[int, str] = {}
        for row, sequence in enumerate(sequences):
            if sequence.sampling.grammar is not None:
                try:
                    matcher = self._matcher(sequence, sequence.sampling.grammar)
                    generated = sequence.token_ids[sequence.num_prompt :]
                    allowed[row] = torch.from_numpy(matcher.allowed(generated, vocabulary))
                except GrammarError as error:
                    errors[row] = f"the grammar of the answer cannot go on: {error}"
        return allowed, errors

    def _matcher(self, sequence: Generation, grammar: str) -> Matcher:
        if sequence.key not in self._matchers:
            self._matchers[sequence.key] = self._grammars.matcher(grammar)
        return self._matchers[sequence.key]
