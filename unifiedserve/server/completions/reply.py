"""Grow the answers to a request to /v1/completions: OpenAI's text completion objects, whole or in chunks."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from unifiedserve.messages.api import Delta, TokenLogprob
from unifiedserve.models.token_bytes import TokenBytes, TokenPiece
from unifiedserve.server.answers.logprobs import PromptLogprobs, encoded, finite, joined, prompt_logprobs
from unifiedserve.server.answers.tally import Tally, Usage, identity
from unifiedserve.server.answers.token_reader import TokenReader
from unifiedserve.server.completions.request import CompletionRequest


class TextLogprobs(msgspec.Struct):
    """List one entry for each token. `text_offset` counts characters. A prompt's first token has no probability.

    A part of a character is written as OpenAI does: `bytes:\\xc3`.
    """

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class TextChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET


class Completion(msgspec.Struct, kw_only=True):
    """Carry answers, as the same object whole and as a chunk of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: Usage | None = None


class TextReply:
    """Grow the answers to some prompts.

    Each prompt has `best_of` answers, of which a whole completion shows the n likeliest. `echoes` are the texts that
    answers begin with, one a prompt.
    """

    def __init__(
        self, asked: CompletionRequest, id: str, model: str, tokens: TokenBytes, echoes: Sequence[str], best_of: int
    ) -> None:
        self._identity = identity(id, model)
        self._tokens = tokens
        self._best_of = best_of
        self._shown = asked.n or 1
        self._logprobs = asked.logprobs
        self._echoed = bool(asked.echo)
        self._prompt_logprobs = asked.prompt_logprobs
        self._with_token_ids = bool(asked.return_token_ids)
        self._tally = Tally(best_of)
        self._answers = [_Answer(echo, tokens) for echo in echoes for _ in range(best_of)]

    def opening(self) -> list[TextChoice]:
        """Return nothing: nothing comes before the first delta."""
        return []

    def take(self, delta: Delta) -> list[TextChoice]:
        """Return what a delta adds to a stream; the first of an answer, the prompt if it is echoed."""
        self._tally.add(delta)
        answer = self._answers[delta.index]
        answer.score += sum(entry.logprob or 0.0 for entry in delta.logprobs or ())
        answer.tokens += len(delta.token_ids)
        echo, answer.echo = answer.echo, ""
        choice = TextChoice(
            delta.index,
            echo + delta.text,
            None if self._logprobs is None else self._text_logprobs(answer.reader, delta, echo, self._logprobs),
            delta.finish_reason,
            delta.stop_reason,
            delta.token_ids if self._with_token_ids else None,
        )
        if self._prompt_logprobs is not None and delta.prompt_logprobs is not None:
            choice.prompt_logprobs = prompt_logprobs(delta.prompt_logprobs, self._tokens, self._prompt_logprobs)
        return [choice]

    def keep(self, choices: Sequence[TextChoice]) -> None:
        """Remember them for `completion`."""
        for choice in choices:
            self._answers[choice.index].choices.append(choice)

    def chunk(self, *choices: TextChoice, usage: Usage | None = None) -> Completion:
        return Completion(**self._identity, choices=list(choices), usage=usage)

    def usage(self) -> Usage:
        return self._tally.usage()

    def completion(self) -> Completion:
        chosen: list[_Answer] = []
        for first in range(0, len(self._answers), self._best_of):
            answers = self._answers[first : first + self._best_of]
            if self._shown < self._best_of:
                answers = sorted(answers, key=lambda answer: answer.score / max(answer.tokens, 1), reverse=True)
            chosen += answers[: self._shown]
        choices = [answer.whole(index) for index, answer in enumerate(chosen)]
        return Completion(**self._identity, choices=choices, usage=self.usage())

    def _text_logprobs(self, reader: TokenReader, delta: Delta, echo: str, count: int) -> TextLogprobs:
        logprobs = TextLogprobs([], [], [], [])
        if self._echoed:
            _append(logprobs, delta.prompt_logprobs or (), count, TokenReader(self._tokens, echo))
        _append(logprobs, delta.logprobs or (), count, reader)
        return logprobs


def _append(logprobs: TextLogprobs, entries: Sequence[TokenLogprob], count: int, reader: TokenReader) -> None:
    for entry in entries:
        top = {_written(reader.at(token)): finite(logprob) for token, logprob in reversed(entry.top[:count])}
        piece, offset = reader.read(entry.token)
        text, logprob = _written(piece), entry.logprob
        logprobs.text_offset.append(offset)
        logprobs.tokens.append(text)
        logprobs.token_logprobs.append(None if logprob is None else finite(logprob))
        logprobs.top_logprobs.append(None if logprob is None else encoded({**top, text: finite(logprob)}))


def _written(piece: TokenPiece) -> str:
    """Return a token as text that is no other token's."""
    return f"bytes:{str(piece.bytes)[2:-1]}" if "\ufffd" in piece.text else piece.text


class _Answer:
    def __init__(self, echo: str, tokens: TokenBytes) -> None:
        self.echo = echo  # until it is shown
        self.reader = TokenReader(tokens, begin=len(echo))
        self.choices: list[TextChoice] = []
        self.score = 0.0  # log-probability of all tokens
        self.tokens = 0

    def whole(self, index: int) -> TextChoice:
        parts = [choice.logprobs for choice in self.choices if choice.logprobs is not None]
        fields = TextLogprobs.__struct_fields__
        return msgspec.structs.replace(
            self.choices[-1],
            index=index,
            text="".join(choice.text for choice in self.choices),
            logprobs=TextLogprobs(*(joined(getattr(part, field) for part in parts) or [] for field in fields))
            if parts
            else None,
            token_ids=joined(choice.token_ids for choice in self.choices),
            prompt_logprobs=self.choices[0].prompt_logprobs,
        )
