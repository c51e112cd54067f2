"""Define objects that clients of /v1/messages get: Anthropic's message and its blocks."""

from typing import Any, Literal

import msgspec

from unifiedserve.messages.seen import SeenMedium

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class TextAnswer(msgspec.Struct, tag_field="type", tag="text"):
    text: str = ""
    citations: None = None


class ThinkingAnswer(msgspec.Struct, tag_field="type", tag="thinking"):
    """Show what was thought. `signature` is the message's id: clients send back only what is signed."""

    thinking: str = ""
    signature: str = ""


class ToolUseAnswer(msgspec.Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any] = {}


AnswerBlock = TextAnswer | ThinkingAnswer | ToolUseAnswer


class OutputTokens(msgspec.Struct):
    thinking_tokens: int


class MessageUsage(msgspec.Struct, kw_only=True):
    """Count tokens. `input_tokens` are those that were not cached."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputTokens
    media: list[SeenMedium] | msgspec.UnsetType = msgspec.UNSET


class MessageAnswer(msgspec.Struct, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlock] = []
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage


class MessageEvent(msgspec.Struct):
    """Hold what all events of a stream have. The rest is as Anthropic describes it for each type."""

    type: str


class CountTokensAnswer(msgspec.Struct):
    input_tokens: int
