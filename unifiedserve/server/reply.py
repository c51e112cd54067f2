"""What clients get: OpenAI's chat completion objects, whole or in chunks."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from unifiedserve.messages import Delta, TokenLogprob
from unifiedserve.server.answer_parser import AnswerParser, Called, Said, Thought
from unifiedserve.server.logprobs import PromptLogprobs, finite, joined, prompt_logprobs
from unifiedserve.server.schema import FunctionCall, ToolCall
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
    content: str | None
    refusal: None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ToolCall] | msgspec.UnsetType = msgspec.UNSET


class FunctionDelta(msgspec.Struct, omit_defaults=True):
    arguments: str
    name: str | None = None


class ToolCallDelta(msgspec.Struct, omit_defaults=True):
    """A call begins, by its name; or more of its arguments."""

    index: int
    function: FunctionDelta
    id: str | None = None
    type: Literal["function"] | None = None


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
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET


class ChunkDelta(msgspec.Struct, omit_defaults=True):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


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

    def __init__(self, id: str, model: str, tokenizer: Any, reading: "Reading", *, token_ids: bool) -> None:
        self._identity = identity(id, model)
        self._tokenizer = tokenizer
        self._with_token_ids = token_ids
        self._prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET
        self._tally = Tally(reading.answers)
        self._answers = [_Answer(reading) for _ in range(reading.answers)]

    def opening(self) -> list[ChunkChoice]:
        """What a stream begins with: the roles."""
        return [ChunkChoice(index, ChunkDelta(role="assistant", content="")) for index in range(len(self._answers))]

    def take(self, delta: Delta) -> list[ChunkChoice]:
        """What a delta adds to a stream: its text, then its end."""
        self._tally.add(delta)
        answer = self._answers[delta.index]
        if delta.prompt_logprobs is not None and delta.index == 0:
            self._prompt_logprobs = prompt_logprobs(delta.prompt_logprobs, self._tokenizer)
        logprobs = None if delta.logprobs is None else Logprobs(self._entries(delta.logprobs))
        token_ids = delta.token_ids if self._with_token_ids else None
        choices = [ChunkChoice(delta.index, part) for part in answer.read(delta)]
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
        return text, finite(logprob), None if "\ufffd" in text else list(text.encode())


class Reading(NamedTuple):
    """How many answers there are, and how each of them is read: `parser` makes one, None leaves them plain text."""

    answers: int
    parser: Callable[[], AnswerParser] | None = None
    tool_choice_named: bool = False
    parallel_calls: bool = True
    short_call_ids: bool = False  # nine letters and digits, as Mistral's templates want them


class _Answer:
    """One answer: the pieces that a stream of it would have."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._parser = reading.parser() if reading.parser is not None else None
        self._calls = 0
        self.plain = self._parser is None
        self.choices: list[ChunkChoice] = []

    def read(self, delta: Delta) -> Iterator[ChunkDelta]:
        """What the client sees of a delta, in pieces of one kind each."""
        if self._parser is None:
            if delta.text:
                yield ChunkDelta(content=delta.text)
            return
        for piece in self._parser.feed(delta.text, delta.finish_reason is not None):
            if isinstance(piece, Said):
                yield ChunkDelta(content=piece.text)
            elif isinstance(piece, Thought):
                yield ChunkDelta(reasoning_content=piece.text)
            elif isinstance(piece, Called):
                self._calls += 1
                yield from self._call(FunctionDelta(piece.arguments, piece.name), self._new_id())
            else:
                yield from self._call(FunctionDelta(piece.text))

    def _call(self, function: FunctionDelta, id: str | None = None) -> Iterator[ChunkDelta]:
        """Of the latest call; nothing of those that are too many."""
        if self._calls == 1 or self._reading.parallel_calls:
            yield ChunkDelta(tool_calls=[ToolCallDelta(self._calls - 1, function, id, "function" if id else None)])

    def finish_reason(self, reason: str) -> str:
        called = self._calls > 0 and not self._reading.tool_choice_named
        return "tool_calls" if called and reason == "stop" else reason

    def whole(self, index: int) -> Choice:
        last = self.choices[-1] if self.choices else ChunkChoice(index, ChunkDelta())
        entries = joined(None if choice.logprobs is None else choice.logprobs.content for choice in self.choices)
        return Choice(
            index,
            self._message([choice.delta for choice in self.choices]),
            None if entries is None else Logprobs(entries),
            last.finish_reason,
            last.stop_reason,
            joined(choice.token_ids for choice in self.choices),
        )

    def _message(self, parts: Sequence[ChunkDelta]) -> AnswerMessage:
        message = AnswerMessage("assistant", "".join(part.content or "" for part in parts))
        if thoughts := "".join(part.reasoning_content or "" for part in parts):
            message.reasoning_content = thoughts
        calls: list[ToolCall] = []
        for call in [call for part in parts for call in part.tool_calls or ()]:
            if call.id is not None:
                calls.append(ToolCall(id=call.id, function=FunctionCall(name=call.function.name or "", arguments="")))
            calls[-1].function.arguments += call.function.arguments
        if calls:
            message.tool_calls = calls
            message.content = message.content or None
        return message

    def _new_id(self) -> str:
        id = uuid.uuid4().hex
        return id[:9] if self._reading.short_call_ids else f"call_{id[:24]}"
