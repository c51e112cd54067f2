"""Define objects that clients of /v1/responses get: OpenAI's response and its items."""

from typing import Any, Literal

import msgspec

from unifiedserve.messages.seen import SeenMedium

Status = Literal["in_progress", "completed", "incomplete"]


class OutputTextPart(msgspec.Struct, tag_field="type", tag="output_text"):
    text: str = ""
    annotations: list[Any] = []
    logprobs: list[Any] = []


class ReasoningTextPart(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    text: str = ""


class OutputMessage(msgspec.Struct, tag_field="type", tag="message", kw_only=True):
    id: str
    status: Status = "in_progress"
    role: Literal["assistant"] = "assistant"
    content: list[OutputTextPart] = []


class OutputReasoning(msgspec.Struct, tag_field="type", tag="reasoning", kw_only=True):
    id: str
    status: Status = "in_progress"
    summary: list[Any] = []
    content: list[ReasoningTextPart] = []


class OutputCall(msgspec.Struct, tag_field="type", tag="function_call", kw_only=True):
    """Call a function. `arguments` is JSON text."""

    id: str
    status: Status = "in_progress"
    call_id: str
    name: str
    arguments: str = ""


OutputItem = OutputMessage | OutputReasoning | OutputCall


class CachedTokens(msgspec.Struct):
    cached_tokens: int


class ReasoningTokens(msgspec.Struct):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int
    media: list[SeenMedium] | msgspec.UnsetType = msgspec.UNSET


class ResponseError(msgspec.Struct):
    code: str
    message: str


class IncompleteDetails(msgspec.Struct):
    reason: Literal["max_output_tokens"]


class ResponseEvent(msgspec.Struct):
    """Hold the fields that all events of a stream have. OpenAI describes the others of each type."""

    type: str
    sequence_number: int


class ResponseObject(msgspec.Struct, kw_only=True):
    """Hold a response. `store` tells whether the server keeps it for a while."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"] = "in_progress"
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str
    output: list[OutputItem] = []
    usage: ResponseUsage | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    temperature: float
    tool_choice: Any
    tools: list[Any]
    top_p: float
    text: Any
    previous_response_id: str | None
    store: bool
    truncation: Literal["disabled"] = "disabled"
