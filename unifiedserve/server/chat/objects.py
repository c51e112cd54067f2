"""Define objects that clients of /v1/chat/completions get: OpenAI's chat completion, whole and in chunks."""

from typing import Literal

import msgspec

from unifiedserve.server.answers.logprobs import PromptLogprobs
from unifiedserve.server.answers.tally import Usage


class TopLogprob(msgspec.Struct):
    """Show a likely token.

    `bytes` are those that it adds to the text: maybe part of a character, none for a special token.
    """

    token: str
    logprob: float
    bytes: list[int]


class LogprobEntry(TopLogprob):
    top_logprobs: list[TopLogprob]


class Logprobs(msgspec.Struct):
    content: list[LogprobEntry]
    refusal: None = None


class FunctionCall(msgspec.Struct):
    """Name a function and its arguments. `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


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
    """Begin a call with its name, or carry more of its arguments."""

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
