"""Grow the answer to a request to /v1/responses, by events."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.messages.api import Delta
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.server.chat.objects import ChunkDelta, ToolCallDelta
from unifiedserve.server.chat.reply import Reply
from unifiedserve.server.errors import status_of
from unifiedserve.server.responses.ids import call_id
from unifiedserve.server.responses.objects import (
    CachedTokens,
    IncompleteDetails,
    OutputCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputTextPart,
    ReasoningTextPart,
    ReasoningTokens,
    ResponseError,
    ResponseObject,
    ResponseUsage,
    Status,
)
from unifiedserve.server.responses.request import ResponsesRequest

_LOGPROBS: dict[str, dict[str, list[Any]]] = {"output_text": {"logprobs": []}}  # events of text always have some

Event = dict[str, Any]


class ResponsesReply:
    """Grow one answer. `chat` reads it, and `store` is called with it at its end.

    The ids of its items share a `stem`.
    """

    def __init__(
        self,
        asked: ResponsesRequest,
        id: str,
        stem: str,
        model: str,
        defaults: SamplingParams,
        chat: Reply,
        store: Callable[[ResponseObject], None] | None,
    ) -> None:
        self._chat = chat
        self._store = store
        self._stem = stem
        self._events = 0
        self._item: OutputItem | None = None
        self.response = ResponseObject(
            id=id,
            created_at=int(time.time()),
            model=model,
            instructions=asked.instructions,
            max_output_tokens=asked.max_output_tokens,
            metadata=asked.metadata or {},
            parallel_tool_calls=asked.parallel_tool_calls is not False,
            temperature=defaults.temperature if asked.temperature is None else asked.temperature,
            tool_choice=asked.tool_choice or "auto",
            tools=asked.tools or [],
            top_p=defaults.top_p if asked.top_p is None else asked.top_p,
            text=asked.text or {"format": {"type": "text"}},
            previous_response_id=asked.previous_response_id,
            store=store is not None,
        )

    def begin(self) -> list[Event]:
        return [self._event(f"response.{name}", response=self.response) for name in ("created", "in_progress")]

    def take(self, delta: Delta) -> list[Event]:
        """Return the events of a delta, up to the end if it is the last."""
        events: list[Event] = []
        for choice in self._chat.take(delta):
            events += self._grow(choice.delta)
            if choice.finish_reason:
                events += self._end(choice.finish_reason)
        return events

    def keep(self, events: list[Event]) -> None:
        """Do nothing: the response has what they say."""

    def completion(self) -> ResponseObject:
        return self.response

    def failure(self, error: RequestError) -> Event:
        """Return the last event of a stream that cannot go on."""
        self.response.status = "failed"
        self.response.error = ResponseError(
            "server_error" if status_of(error) >= 500 else "invalid_prompt", error.message
        )
        return self._event("response.failed", response=self.response)

    def _grow(self, part: ChunkDelta) -> Iterator[Event]:
        if part.reasoning_content:
            if not isinstance(self._item, OutputReasoning):
                yield from self._open(OutputReasoning(id=self._new_id("rs"), content=[ReasoningTextPart()]))
            yield from self._write("reasoning_text", part.reasoning_content)
        if part.content:
            if not isinstance(self._item, OutputMessage):
                yield from self._open(OutputMessage(id=self._new_id("msg"), content=[OutputTextPart()]))
            yield from self._write("output_text", part.content)
        for call in part.tool_calls or ():
            yield from self._call(call)

    def _write(self, kind: str, text: str) -> Iterator[Event]:
        assert isinstance(self._item, OutputMessage | OutputReasoning)
        self._item.content[0].text += text
        yield self._item_event(f"{kind}.delta", content_index=0, delta=text, **_LOGPROBS.get(kind, {}))

    def _call(self, call: ToolCallDelta) -> Iterator[Event]:
        if call.id is not None:
            id = self._new_id("fc")
            yield from self._open(OutputCall(id=id, call_id=call_id(id, call.id), name=call.function.name or ""))
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
            ReasoningTokens(self._chat.thought_tokens),
            usage.total_tokens,
            usage.media,
        )
        if self._store is not None:
            self._store(self.response)
        yield self._event(f"response.{status}", response=self.response)

    def _new_id(self, kind: str) -> str:
        return f"{kind}_{self._stem}_{len(self.response.output)}"

    @property
    def _index(self) -> int:
        return len(self.response.output) - 1

    def _item_event(self, event: str, **fields: Any) -> Event:
        """Return an event inside of the item that is growing."""
        assert self._item is not None
        return self._event(f"response.{event}", item_id=self._item.id, output_index=self._index, **fields)

    def _event(self, event: str, **fields: Any) -> Event:
        """Return an event that shows things as they are now: they grow on."""
        self._events += 1
        return {"type": event, "sequence_number": self._events - 1, **msgspec.to_builtins(fields)}
