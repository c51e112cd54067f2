"""What clients get: OpenAI's chat completion objects, whole or in chunks."""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from unifiedserve.messages import Delta, TokenLogprob
from unifiedserve.server.tally import Tally, Usage, identity


class TopLogprob(msgspec.Struct):
    """`bytes` is None where a token is only a part of a character."""

    token: str
    logprob: float
    bytes: list[int] | None


class LogprobEntry(TopLogprob):
    top_logprobs: list[TopLogprob]


class Logprobs(msgspec.Struct):
    content: list[LogprobEntry]
    refusal: None = None


class AnswerMessage(msgspec.Struct):
    role: Literal["assistant"]
    content: str
    refusal: None = None


class Choice(msgspec.Struct):
    index: int
    message: AnswerMessage
    logprobs: Logprobs | None
    finish_reason: str | None
    stop_reason: str | int | None
    token_ids: list[int] | None


class ChatCompletion(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: Usage


class ChunkDelta(msgspec.Struct, omit_defaults=True):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(msgspec.Struct):
    index: int
    delta: ChunkDelta
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None


class ChatCompletionChunk(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: Usage | None = None


class Reply:
    """The answers to one request as they grow: usage so far, and the objects that carry them."""

    def __init__(self, id: str, model: str, tokenizer: Any, answers: int, token_ids: bool = False) -> None:
        self._identity = identity(id, model)
        self._tokenizer = tokenizer
        self._with_token_ids = token_ids
        self._tally = Tally(answers)
        self._answers = [_Answer() for _ in range(answers)]

    def opening(self) -> list[ChunkChoice]:
        """What a stream begins with: the roles."""
        return [ChunkChoice(index, ChunkDelta(role="assistant", content="")) for index in range(len(self._answers))]

    def take(self, delta: Delta) -> list[ChunkChoice]:
        """What a delta adds to a stream: its text, then its end."""
        self._tally.add(delta)
        choices = []
        if delta.text or delta.token_ids:
            logprobs = None if delta.logprobs is None else Logprobs(self._entries(delta.logprobs))
            token_ids = delta.token_ids if self._with_token_ids else None
            choices.append(ChunkChoice(delta.index, ChunkDelta(content=delta.text), logprobs, token_ids=token_ids))
        if delta.finish_reason:
            choices.append(ChunkChoice(delta.index, ChunkDelta(), None, delta.finish_reason, delta.stop_reason))
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
        return ChatCompletion(**self._identity, choices=choices, usage=self.usage())

    def _entries(self, logprobs: Iterable[TokenLogprob]) -> list[LogprobEntry]:
        return [
            LogprobEntry(
                *self._token(entry.token, entry.logprob), [TopLogprob(*self._token(*top)) for top in entry.top]
            )
            for entry in logprobs
            if entry.logprob is not None
        ]

    def _token(self, token: int, logprob: float) -> tuple[str, float, list[int] | None]:
        text: str = self._tokenizer.decode([token])
        return text, max(logprob, -9999.0), None if "\ufffd" in text else list(text.encode())


class _Answer:
    """One answer: the pieces that a stream of it would have."""

    def __init__(self) -> None:
        self.choices: list[ChunkChoice] = []

    def whole(self, index: int) -> Choice:
        last = self.choices[-1] if self.choices else ChunkChoice(index, ChunkDelta())
        logprobs = [choice.logprobs for choice in self.choices if choice.logprobs is not None]
        token_ids = [choice.token_ids for choice in self.choices if choice.token_ids is not None]
        return Choice(
            index,
            AnswerMessage("assistant", "".join(choice.delta.content or "" for choice in self.choices)),
            Logprobs([entry for part in logprobs for entry in part.content]) if logprobs else None,
            last.finish_reason,
            last.stop_reason,
            [token for part in token_ids for token in part] if token_ids else None,
        )
