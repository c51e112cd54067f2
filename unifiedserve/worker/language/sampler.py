"""Choose the next token of each sequence: grammars, sampling, and the ends of answers."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from unifiedserve.messages.wire import Token
from unifiedserve.sampling.adjust import Pending
from unifiedserve.sampling.grammar import GrammarError, Grammars, Matcher
from unifiedserve.sampling.sample import Draw, SampledToken
from unifiedserve.sampling.seen import Seen
from unifiedserve.worker.language.sequence import Sequence

Key = tuple[int, int]


class Drawing(NamedTuple):
    """Follow tokens on their way, and why the grammars of some rows failed."""

    draw: Draw
    errors: dict[int, str]


class Sampler:
    """Sample tokens, within the grammar of those sequences that have one.

    Matchers, and which tokens were seen, only cache what follows from grammars and tokens: missing ones are made again.
    """

    def __init__(self, grammars: Grammars, eos_token_ids: tuple[int, ...]) -> None:
        self._grammars = grammars
        self._eos = eos_token_ids
        self._matchers: dict[Key, Matcher] = {}
        self._seen: dict[Key, Seen] = {}

    def expect_grammar(self) -> None:
        """Begin to load what a sequence with a grammar will need."""
        self._grammars.start()

    def next_tokens(
        self, sequences: list[Sequence], logits: Tensor, drafts: list[list[int]] | None = None
    ) -> list[Token]:
        """Sample from float32 logits [B, vocab] and append tokens. Each comes with what it means for the answer.

        Without `drafts` there is a row and a token for each sequence. With them there is a further row behind each
        drafted token. A token is sampled in every row, and those up to the first that is not the drafted one are
        appended: so far the model was given what it would have been given anyway. As the randomness of a row depends on
        nothing but the seed and the token's number, they are the very tokens of one step after another. In distribution
        that is the rejection sampling of Leviathan et al. (arXiv:2211.17192, §2.3): a draft that knows no alternatives
        is accepted with the probability that the model gives it, and else replaced by one of the others.

        A grammar that cannot go on makes its token one with an `error`, and leaves the others alone. A sequence with a
        grammar has no draft.
        """
        drafts = drafts or [[] for _ in sequences]
        places = [(s, draft[:n]) for s, draft in zip(sequences, drafts, strict=True) for n in range(len(draft) + 1)]
        drawing = self.draw(
            [s for s, _ in places],
            logits,
            [s.num_generated + len(before) for s, before in places],
            [before for _, before in places],
        )
        sampled = drawing.draw.finish(drawing.draw.tokens.tolist())
        tokens: list[Token] = []
        first = 0
        for sequence, draft in zip(sequences, drafts, strict=True):
            own = sampled[first : first + len(draft) + 1]
            tokens += self._accept(sequence, draft, own, drawing.errors.get(first))
            first += len(own)
        return tokens

    def draw(
        self,
        sequences: list[Sequence],
        logits: Tensor,
        indices: list[int],
        drafted: list[list[int]] | None = None,
        *,
        pending: Pending | None = None,
        keep: bool = False,
    ) -> Drawing:
        """Begin to draw each sequence's generated token of that number.

        It is the next one if its parameters `follow`, behind what is `drafted` of it or the one that is `pending`.
        """
        drafted, vocab = drafted or [[] for _ in sequences], logits.shape[1]
        allowed, errors = self._allowed(sequences, vocab)
        texts = list(zip(sequences, drafted, strict=True))
        histories = [s.token_ids + before if before and s.sampling.follows else s.token_ids for s, before in texts]
        seen = {
            row: self._seen_by(s, vocab).tokens(s.token_ids, before)
            for row, (s, before) in enumerate(texts)
            if s.sampling.repetition_penalty != 1
        }
        draw = Draw(
            logits,
            [s.sampling for s in sequences],
            histories,
            indices,
            self._eos,
            allowed,
            seen=seen,
            pending=pending,
            keep=keep,
        )
        return Drawing(draw, errors)

    def append(self, sequence: Sequence, sampled: SampledToken, error: str | None = None) -> Token:
        """Add what was drawn to a sequence; an `error` ends it."""
        token = sequence.append(sampled, self._eos)
        if error:
            token.finish, token.error = "stop", error
        if token.finish:
            self.forget(sequence.key)
        return token

    def _accept(
        self, sequence: Sequence, draft: list[int], sampled: list[SampledToken], error: str | None
    ) -> Iterator[Token]:
        """Append samples up to where the answer ends or leaves the draft."""
        for number, own in enumerate(sampled):
            token = self.append(sequence, own, error)
            yield token
            if token.finish or draft[number : number + 1] != [own.token]:
                return

    def forget(self, key: Key) -> None:
        """Drop what is cached for a sequence that has ended here."""
        self._matchers.pop(key, None)
        self._seen.pop(key, None)

    def _allowed(self, sequences: list[Sequence], vocabulary: int) -> tuple[dict[int, Tensor], dict[int, str]]:
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

    def _matcher(self, sequence: Sequence, grammar: str) -> Matcher:
        if sequence.key not in self._matchers:
            self._matchers[sequence.key] = self._grammars.matcher(grammar)
        return self._matchers[sequence.key]

    def _seen_by(self, sequence: Sequence, vocabulary: int) -> Seen:
        if sequence.key not in self._seen:
            self._seen[sequence.key] = Seen(vocabulary)
        return self._seen[sequence.key]
