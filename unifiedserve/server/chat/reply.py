"""Grow the answers to a chat request, and the objects that carry them."""

from collections.abc import Iterable, Iterator

import msgspec

from unifiedserve.messages.api import Delta, TokenLogprob
from unifiedserve.models.token_bytes import TokenBytes, TokenPiece
from unifiedserve.server.answers.logprobs import PromptLogprobs, encoded, finite, prompt_logprobs
from unifiedserve.server.answers.tally import Tally, Usage, identity
from unifiedserve.server.answers.token_reader import TokenReader
from unifiedserve.server.chat.answer import ChatAnswer
from unifiedserve.server.chat.objects import (
    ChatCompletion,
    ChatCompletionChunk,
    ChunkChoice,
    ChunkDelta,
    LogprobEntry,
    Logprobs,
    TopLogprob,
)
from unifiedserve.server.chat.reading import Reading


class Reply:
    """Grow the answers to one request: usage so far, and the objects that carry them."""

    def __init__(self, id: str, model: str, tokens: TokenBytes, reading: Reading, *, token_ids: bool) -> None:
        self._identity = identity(id, model)
        self._tokens = tokens
        self._with_token_ids = token_ids
        self._prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET
        self._tally = Tally(reading.answers)
        self._answers = [ChatAnswer(reading) for _ in range(reading.answers)]
        self.thought_tokens = 0  # in deltas that have some of the reasoning's text
        self._readers = [TokenReader(tokens) for _ in range(reading.answers)]

    def opening(self) -> list[ChunkChoice]:
        """Return what a stream begins with: the roles."""
        return [ChunkChoice(index, ChunkDelta(role="assistant", content="")) for index in range(len(self._answers))]

    def take(self, delta: Delta) -> list[ChunkChoice]:
        """Return what a delta adds to a stream: its text, then its end."""
        self._tally.add(delta)
        answer = self._answers[delta.index]
        if delta.prompt_logprobs is not None and delta.index == 0:
            self._prompt_logprobs = prompt_logprobs(delta.prompt_logprobs, self._tokens)
        logprobs = (
            None if delta.logprobs is None else Logprobs(list(_entries(self._readers[delta.index], delta.logprobs)))
        )
        token_ids = delta.token_ids if self._with_token_ids else None
        choices = [ChunkChoice(delta.index, part) for part in answer.read(delta)]
        if any(choice.delta.reasoning_content for choice in choices):
            self.thought_tokens += len(delta.token_ids)
        if not choices and delta.token_ids and (answer.plain or logprobs or token_ids):
            choices.append(ChunkChoice(delta.index, ChunkDelta(content="")))
        if choices:
            choices[0].logprobs, choices[0].token_ids = logprobs, token_ids
        if delta.finish_reason:
            finish = answer.finish_reason(delta.finish_reason)
            choices.append(ChunkChoice(delta.index, ChunkDelta(), None, finish, delta.stop_reason))
        return choices

    def keep(self, choices: Iterable[ChunkChoice]) -> None:
        """Remember them for `completion`."""
        for choice in choices:
            self._answers[choice.index].choices.append(choice)

    def chunk(self, *choices: ChunkChoice, usage: Usage | None = None) -> ChatCompletionChunk:
        return ChatCompletionChunk(**self._identity, choices=list(choices), usage=usage)

    def usage(self) -> Usage:
        return self._tally.usage()

    def completion(self) -> ChatCompletion:
        choices = [answer.whole(index) for index, answer in enumerate(self._answers)]
        return ChatCompletion(
            **self._identity, choices=choices, usage=self.usage(), prompt_logprobs=self._prompt_logprobs
        )


def _entries(reader: TokenReader, logprobs: Iterable[TokenLogprob]) -> Iterator[LogprobEntry]:
    for entry in logprobs:
        top = [TopLogprob(*_described(reader.at(token), logprob)) for token, logprob in entry.top]
        piece, _ = reader.read(entry.token)
        if entry.logprob is not None:
            yield encoded(LogprobEntry(*_described(piece, entry.logprob), top))


def _described(piece: TokenPiece, logprob: float) -> tuple[str, float, list[int]]:
    return piece.text, finite(logprob), list(piece.bytes)
