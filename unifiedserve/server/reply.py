"""What clients get: OpenAI's chat completion objects, whole or in chunks."""

import time
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from unifiedserve import __version__
from unifiedserve.messages import Delta, TokenLogprob


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


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


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
        self._identity: dict[str, Any] = {
            "id": id,
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"unifiedserve-{__version__}",
        }
        self._tokenizer = tokenizer
        self._with_token_ids = token_ids
        self.answers = answers
        self._answers = [_Answer() for _ in range(answers)]
        self._prompt_tokens = 0

    def add(self, delta: Delta) -> None:
        self._prompt_tokens = delta.prompt_tokens
        answer = self._answers[delta.index]
        answer.generated_tokens = delta.generated_tokens
        answer.finish_reason = delta.finish_reason
        answer.stop_reason = delta.stop_reason

    def keep(self, delta: Delta) -> None:
        """Remember the text itself, too, for `completion`."""
        answer = self._answers[delta.index]
        answer.text.append(delta.text)
        answer.token_ids.extend(delta.token_ids)
        answer.logprobs += self._entries(delta.logprobs or ())
        answer.wants_logprobs |= delta.logprobs is not None

    def usage(self) -> Usage:
        generated = sum(answer.generated_tokens for answer in self._answers)
        return Usage(self._prompt_tokens, generated, self._prompt_tokens + generated)

    def completion(self) -> ChatCompletion:
        choices = [
            Choice(
                index,
                AnswerMessage("assistant", "".join(answer.text)),
                Logprobs(answer.logprobs) if answer.wants_logprobs else None,
                answer.finish_reason,
                answer.stop_reason,
                answer.token_ids if self._with_token_ids else None,
            )
            for index, answer in enumerate(self._answers)
        ]
        return ChatCompletion(**self._identity, choices=choices, usage=self.usage())

    def chunk(self, *choices: ChunkChoice, usage: Usage | None = None) -> ChatCompletionChunk:
        return ChatCompletionChunk(**self._identity, choices=list(choices), usage=usage)

    def chunks(self, delta: Delta) -> list[ChunkChoice]:
        """What a delta adds to a stream: its text, then its end."""
        choices = []
        if delta.text or delta.token_ids:
            logprobs = None if delta.logprobs is None else Logprobs(self._entries(delta.logprobs))
            token_ids = delta.token_ids if self._with_token_ids else None
            choices.append(ChunkChoice(delta.index, ChunkDelta(content=delta.text), logprobs, token_ids=token_ids))
        if delta.finish_reason:
            choices.append(ChunkChoice(delta.index, ChunkDelta(), None, delta.finish_reason, delta.stop_reason))
        return choices

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
    def __init__(self) -> None:
        self.text: list[str] = []
        self.token_ids: list[int] = []
        self.logprobs: list[LogprobEntry] = []
        self.wants_logprobs = False
        self.generated_tokens = 0
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
