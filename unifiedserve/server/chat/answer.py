"""Grow one of the answers to a chat request."""

import uuid
from collections.abc import Iterator, Sequence

from unifiedserve.messages.api import Delta
from unifiedserve.server.answers.logprobs import joined
from unifiedserve.server.answers.parser import Called, Said, Thought
from unifiedserve.server.chat.objects import (
    AnswerMessage,
    Choice,
    ChunkChoice,
    ChunkDelta,
    FunctionCall,
    FunctionDelta,
    Logprobs,
    ToolCall,
    ToolCallDelta,
)
from unifiedserve.server.chat.reading import Reading


class ChatAnswer:
    """Hold one answer: the pieces that a stream of it would have."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._parser = reading.parser() if reading.parser is not None else None
        self._calls = 0
        self.plain = self._parser is None
        self.choices: list[ChunkChoice] = []

    def read(self, delta: Delta) -> Iterator[ChunkDelta]:
        """Yield what the client sees of a delta, in pieces of one kind each."""
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
        """Yield more of the latest call; nothing of those that are too many."""
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
