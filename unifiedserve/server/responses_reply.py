"""What clients of /v1/responses get: OpenAI's response object, and the events that it grows by."""

import time
import uuid
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.messages import Delta
from unifiedserve.server.reply import ChunkDelta, Reply, ToolCallDelta
from unifiedserve.server.responses_schema import ResponsesRequest

Status = Literal["in_progress", "completed", "incomplete"]
_LOGPROBS: dict[str, dict[str, list[Any]]] = {"output_text": {"logprobs": []}}  # events of text always have some


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
    """`arguments` is JSON text."""

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


class ResponseError(msgspec.Struct):
    code: str
    message: str


class IncompleteDetails(msgspec.Struct):
    reason: Literal["max_output_tokens"]


class ResponseObject(msgspec.Struct, kw_only=True):
    """Nothing of it is stored."""

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
    previous_response_id: None = None
    store: Literal[False] = False
    truncation: Literal["disabled"] = "disabled"


Event = dict[str, Any]


class ResponsesReply:
    """One answer as it grows; `chat` reads it."""

    def __init__(self, asked: ResponsesRequest, id: str, model: str, chat: Reply) -> None:
        self._chat = chat
        self._events = 0
        self._thought_tokens = 0
        self._item: OutputItem | None = None
        self.response = ResponseObject(
            id=id,
            created_at=int(time.time()),
            model=model,
            instructions=asked.instructions,
            max_output_tokens=asked.max_output_tokens,
            metadata=asked.metadata or {},
            parallel_tool_calls=asked.parallel_tool_calls is not False,
            temperature=1.0 if asked.temperature is None else asked.temperature,
            tool_choice=asked.tool_choice or "auto",
            tools=asked.tools or [],
            top_p=1.0 if asked.top_p is None else asked.top_p,
            text=asked.text or {"format": {"type": "text"}},
        )

    def begin(self) -> list[Event]:
        return [self._event(f"response.{name}", response=self.response) for name in ("created", "in_progress")]

    def take(self, delta: Delta) -> list[Event]:
        """The events of a delta, up to the end if it is the last."""
        events: list[Event] = []
        for choice in self._chat.take(delta):
            events += self._grow(choice.delta)
            if choice.delta.reasoning_content:
                self._thought_tokens += len(delta.token_ids)
            if choice.finish_reason:
                events += self._end(choice.finish_reason)
        return events

    def keep(self, events: list[Event]) -> None:
        """The response has what they say."""

    def completion(self) -> ResponseObject:
        return self.response

    def failure(self, error: RequestError) -> Event:
        """The last event of a stream that cannot go on."""
        self.response.status = "failed"
        self.response.error = ResponseError("server_error" if error.status >= 500 else "invalid_prompt", error.message)
        return self._event("response.failed", response=self.response)

    def _grow(self, part: ChunkDelta) -> Iterator[Event]:
        if part.reasoning_content:
            if not isinstance(self._item, OutputReasoning):
                yield from self._open(OutputReasoning(id=_new_id("rs"), content=[ReasoningTextPart()]))
            yield from self._write("reasoning_text", part.reasoning_content)
        if part.content:
            if not isinstance(self._item, OutputMessage):
                yield from self._open(OutputMessage(id=_new_id("msg"), content=[OutputTextPart()]))
            yield from self._write("output_text", part.content)
        for call in part.tool_calls or ():
            yield from self._call(call)

    def _write(self, kind: str, text: str) -> Iterator[Event]:
        assert isinstance(self._item, OutputMessage | OutputReasoning)
        self._item.content[0].text += text
        yield self._item_event(f"{kind}.delta", content_index=0, delta=text, **_LOGPROBS.get(kind, {}))

    def _call(self, call: ToolCallDelta) -> Iterator[Event]:
        if call.id is not None:
            yield from self._open(OutputCall(id=_new_id("fc"), call_id=call.id, name=call.function.name or ""))
        if call.function.arguments:
            assert isinstance(self._item, OutputCall)
            self._item.arguments += call.function.arguments
            yield self._item_event("function_call_arguments.delta", delta=call.function.arguments)

    def _open(self, item: OutputItem) -> Iterator[Event]:
        yield from self._close("completed")
        self._item = item
        self.response.output.append(item)
        shown = item if isinstance(item, OutputCall) else msgspec.structs.replace(item, content=[])
        yield self._event("response.output_item.added", output_index=self._index, item=shown)
        if isinstance(item, OutputMessage):
            yield self._item_event("content_part.added", content_index=0, part=item.content[0])

    def _close(self, status: Status) -> Iterator[Event]:
        item = self._item
        if item is None:
            return
        item.status = status
        if isinstance(item, OutputCall):
            yield self._item_event("function_call_arguments.done", name=item.name, arguments=item.arguments)
        else:
            kind = "output_text" if isinstance(item, OutputMessage) else "reasoning_text"
            text = item.content[0].text
            yield self._item_event(f"{kind}.done", content_index=0, text=text, **_LOGPROBS.get(kind, {}))
        if isinstance(item, OutputMessage):
            yield self._item_event("content_part.done", content_index=0, part=item.content[0])
        yield self._event("response.output_item.done", output_index=self._index, item=item)
        self._item = None

    def _end(self, finish_reason: str) -> Iterator[Event]:
        status: Status = "incomplete" if finish_reason == "length" else "completed"
        yield from self._close(status)
        self.response.status = status
        if status == "incomplete":
            self.response.incomplete_details = IncompleteDetails("max_output_tokens")
        usage = self._chat.usage()
        self.response.usage = ResponseUsage(
            usage.prompt_tokens,
            CachedTokens(usage.prompt_tokens_details.cached_tokens),
            usage.completion_tokens,
            ReasoningTokens(self._thought_tokens),
            usage.total_tokens,
        )
        yield self._event(f"response.{status}", response=self.response)

    @property
    def _index(self) -> int:
        return len(self.response.output) - 1

    def _item_event(self, event: str, **fields: Any) -> Event:
        """An event inside of the item that is growing."""
        assert self._item is not None
        return self._event(f"response.{event}", item_id=self._item.id, output_index=self._index, **fields)

    def _event(self, event: str, **fields: Any) -> Event:
        """As things are now: they grow on."""
        self._events += 1
        return {"type": event, "sequence_number": self._events - 1, **msgspec.to_builtins(fields)}


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"
