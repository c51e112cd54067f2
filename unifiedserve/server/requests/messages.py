"""Messages of a conversation, with texts, images and videos, and calls of tools."""

from typing import Annotated, Literal

from msgspec import Meta

from unifiedserve.server.requests.base import Strict


class ImageURL(Strict):
    url: str
    detail: Literal["auto", "low", "high"] | None = None


class VideoURL(Strict):
    url: str


class TextPart(Strict, tag_field="type", tag="text"):
    text: str


class ImagePart(Strict, tag_field="type", tag="image_url"):
    image_url: ImageURL | None
    uuid: str | None = None


class VideoPart(Strict, tag_field="type", tag="video_url"):
    video_url: VideoURL | None
    uuid: str | None = None


Part = TextPart | ImagePart | VideoPart


class FunctionCall(Strict):
    """`arguments` is JSON text."""

    name: str
    arguments: str


class ToolCall(Strict):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class Message(Strict):
    """A turn. The fields typed None are those that OpenAI's client sends back with an earlier answer."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None


Messages = Annotated[list[Message], Meta(min_length=1)]
