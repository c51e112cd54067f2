"""Grow the answer to a request to /v1/messages, by events."""

from collections.abc import Iterator
from typing import Any

import msgspec

from unifiedserve.errors import NO_JSON, RequestError
from unifiedserve.messages.api import Delta
from unifiedserve.server.anthropic.objects import (
    AnswerBlock,
    MessageAnswer,
    MessageUsage,
    OutputTokens,
    StopReason,
    TextAnswer,
    ThinkingAnswer,
    ToolUseAnswer,
)
from unifiedserve.server.chat.objects import ChunkChoice, ToolCallDelta
from unifiedserve.server.chat.reply import Reply
from unifiedserve.server.error_bodies import anthropic_error_body
from unifiedserve.server.errors import status_of

Event = dict[str, Any]


class MessageReply:
    """Grow one answer. `chat` reads it."""

    def __init__(self, id: str, model: str, chat: Reply) -> None:
        self._chat = chat
        self._message = MessageAnswer(id=id, model=model, usage=self._usage())
        self._begun = False
        self._block: AnswerBlock | None = None
        self._arguments = ""  # of the call that grows

    def begin(self) -> list[Event]:
        """Return nothing: the first event tells the prompt's tokens, as the first delta does."""
        return []

    def take(self, delta: Delta) -> list[Event]:
        """Return the events of a delta, up to the end if it is the last."""
        choices = self._chat.take(delta)
        return [*self._start(), *(each for choice in choices for each in self._grow(choice))]

    def keep(self, events: list[Event]) -> None:
        """Do nothing: the message has what they say."""

    def completion(self) -> MessageAnswer:
        return self._message

    def failure(self, error: RequestError) -> Event:
        body: Event = msgspec.to_builtins(anthropic_error_body(error, status_of(error)))
        return body

    def _start(self) -> Iterator[Event]:
        if not self._begun:
            self._begun = True
            self._message.usage = self._usage()
            yield {"type": "message_start", "message": msgspec.to_builtins(self._message)}

    def _grow(self, choice: ChunkChoice) -> Iterator[Event]:
        part = choice.delta
        if part.reasoning_content:
            yield from self._think(part.reasoning_content)
        if part.content:
            yield from self._say(part.content)
        for call in part.tool_calls or ():
            yield from self._call(call)
        if choice.finish_reason:
            yield from self._end(choice)

    def _think(self, text: str) -> Iterator[Event]:
        if not isinstance(self._block, ThinkingAnswer):
            yield from self._open(ThinkingAnswer())
        assert isinstance(self._block, ThinkingAnswer)
        self._block.thinking += text
        yield self._delta("thinking_delta", thinking=text)

    def _say(self, text: str) -> Iterator[Event]:
        if not isinstance(self._block, TextAnswer):
            yield from self._open(TextAnswer())
        assert isinstance(self._block, TextAnswer)
        self._block.text += text
        yield self._delta("text_delta", text=text)

    def _call(self, call: ToolCallDelta) -> Iterator[Event]:
        written = call.function.arguments
        if call.id is not None:
            yield from self._open(ToolUseAnswer(call.id, call.function.name or ""))
            if written and not _object(written):
                return  # a call's input is an object
        if written:
            self._arguments += written
            yield self._delta("input_json_delta", partial_json=written)

    def _open(self, block: AnswerBlock) -> Iterator[Event]:
        yield from self._close()
        self._block = block
        self._arguments = ""
        self._message.content.append(block)
        yield {"type": "content_block_start", "index": self._index, "content_block": msgspec.to_builtins(block)}

    def _close(self) -> Iterator[Event]:
        block = self._block
        if block is None:
            return
        if isinstance(block, ThinkingAnswer):
            block.signature = self._message.id
            yield self._delta("signature_delta", signature=block.signature)
        elif isinstance(block, ToolUseAnswer):
            block.input = _object(self._arguments)
        yield {"type": "content_block_stop", "index": self._index}
        self._block = None

    def _end(self, choice: ChunkChoice) -> Iterator[Event]:
        yield from self._close()
        message = self._message
        message.stop_reason = self._stop_reason(choice)
        message.stop_sequence = choice.stop_reason if isinstance(choice.stop_reason, str) else None
        message.usage = self._usage()
        delta = {"stop_reason": message.stop_reason, "stop_sequence": message.stop_sequence}
        yield {"type": "message_delta", "delta": delta, "usage": msgspec.to_builtins(message.usage)}
        yield {"type": "message_stop"}

    def _stop_reason(self, choice: ChunkChoice) -> StopReason:
        if choice.finish_reason == "length":
            return "max_tokens"
        if isinstance(choice.stop_reason, str):
            return "stop_sequence"
        called = any(isinstance(block, ToolUseAnswer) for block in self._message.content)
        return "tool_use" if called else "end_turn"

    def _usage(self) -> MessageUsage:
        usage = self._chat.usage()
        cached = usage.prompt_tokens_details.cached_tokens
        return MessageUsage(
            input_tokens=usage.prompt_tokens - cached,
            cache_read_input_tokens=cached,
            output_tokens=usage.completion_tokens,
            output_tokens_details=OutputTokens(self._chat.thought_tokens),
            media=usage.media,
        )

    def _delta(self, type: str, **fields: str) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": {"type": type, **fields}}

    @property
    def _index(self) -> int:
        return len(self._message.content) - 1


def _object(text: str) -> dict[str, Any]:
    """Return the object that a call's arguments are; an empty one if they are none."""
    try:
        value = msgspec.json.decode(text or "{}")
    except NO_JSON:
        return {}
    return value if isinstance(value, dict) else {}
