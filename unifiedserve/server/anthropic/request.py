"""Define requests to /v1/messages: Anthropic's fields as far as they are supported, and videos."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from unifiedserve.messages.sampling_params import Temperature, TopK
from unifiedserve.server.requests.base import (
    Deadline,
    FirstTokenTarget,
    ModelRequest,
    PositiveInt,
    Priority,
    Resume,
    Strict,
)
from unifiedserve.server.requests.generation import Share
from unifiedserve.server.requests.media_options import MaxTTFT, MediaIO, ProcessorKwargs
from unifiedserve.server.requests.messages import FileId, Frames, Rate

MediaType = Annotated[
    str, Meta(pattern=r"^(image|video)/[A-Za-z0-9.+-]+$", description="the type of an image or a video, like image/png")
]


class Base64Source(Strict, tag_field="type", tag="base64"):
    media_type: MediaType
    data: str


class URLSource(Strict, tag_field="type", tag="url"):
    url: str


class VideoURLSource(Strict, tag_field="type", tag="url"):
    url: str | Frames


class FileSource(Strict, tag_field="type", tag="file"):
    """Name an uploaded file (/v1/files)."""

    file_id: FileId


class TextBlock(Strict, tag_field="type", tag="text"):
    """Hold a text. `parsed_output` is what clients add to earlier answers."""

    unsupported: ClassVar[Mapping[str, Collection[Any]]] = {**Strict.unsupported, "citations": (None, [])}

    text: str
    parsed_output: Any = None


class ImageBlock(Strict, tag_field="type", tag="image"):
    source: Base64Source | URLSource | FileSource


class VideoBlock(Strict, tag_field="type", tag="video"):
    """Hold a video. The block is this server's, not Anthropic's."""

    source: Base64Source | VideoURLSource | FileSource
    fps: Rate | None = None


class ThinkingBlock(Strict, tag_field="type", tag="thinking"):
    """Hold the thoughts of an earlier answer. The signature is not checked."""

    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Strict, tag_field="type", tag="redacted_thinking"):
    """Hold thoughts of an answer of Anthropic's. Nobody else can read them, so they are left out."""

    data: str


class ToolUseBlock(Strict, tag_field="type", tag="tool_use"):
    """Hold a call of a tool. `input` is an object, unless an answer was cut off within it."""

    unsupported: ClassVar[Mapping[str, Collection[Any]]] = {
        **Strict.unsupported,
        "caller": (None, {"type": "direct"}),
    }

    id: str
    name: str
    input: Any


class ToolResultBlock(Strict, tag_field="type", tag="tool_result"):
    """Hold a tool's result. `is_error` is for clients: the model reads the content."""

    tool_use_id: str
    content: str | list[TextBlock | ImageBlock | VideoBlock] | None = None
    is_error: bool | None = None


UserBlock = TextBlock | ImageBlock | VideoBlock | ToolResultBlock
AssistantBlock = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock


class UserTurn(Strict, tag_field="role", tag="user"):
    content: str | Annotated[list[UserBlock], Meta(min_length=1)]


class AssistantTurn(Strict, tag_field="role", tag="assistant"):
    content: str | list[AssistantBlock]


class SystemTurn(Strict, tag_field="role", tag="system"):
    content: str | list[TextBlock]


class CustomTool(Strict):
    """Describe a tool. `input_schema` is a JSON schema."""

    unsupported: ClassVar[Mapping[str, Collection[Any]]] = {
        **Strict.unsupported,
        "allowed_callers": (None, ["direct"]),
        "defer_loading": (None, False),
        "eager_input_streaming": (None, True, False),  # inputs are streamed as they are written
        "input_examples": (None, []),
    }

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    type: Literal["custom"] | None = None


class AutoChoice(Strict, tag_field="type", tag="auto"):
    disable_parallel_tool_use: bool | None = None


class AnyChoice(Strict, tag_field="type", tag="any"):
    disable_parallel_tool_use: bool | None = None


class ToolChoice(Strict, tag_field="type", tag="tool"):
    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(Strict, tag_field="type", tag="none"):
    pass


class ThinkingEnabled(Strict, tag_field="type", tag="enabled"):
    """Turn thinking on. `budget_tokens` bounds nothing: the model thinks as long as it likes, within `max_tokens`."""

    budget_tokens: PositiveInt | None = None
    display: Literal["summarized"] | None = None


class ThinkingAdaptive(Strict, tag_field="type", tag="adaptive"):
    display: Literal["summarized"] | None = None


class ThinkingDisabled(Strict, tag_field="type", tag="disabled"):
    pass


class OutputFormat(Strict, tag_field="type", tag="json_schema"):
    schema: dict[str, Any]


class OutputConfig(Strict):
    unsupported: ClassVar[Mapping[str, Collection[Any]]] = {**Strict.unsupported, "effort": (None, "high")}

    format: OutputFormat | None = None


class UserMetadata(Strict):
    user_id: str | None = None


class CountTokensRequest(ModelRequest, kw_only=True):
    """Hold a prompt: all that makes the tokens that the model reads."""

    unsupported: ClassVar[Mapping[str, Collection[Any]]] = {
        **Strict.unsupported,
        "container": (None,),
        "context_management": (None,),
        "diagnostics": (None,),
        "inference_geo": (None,),
        "mcp_servers": (None, []),
        "speed": (None, "standard"),
    }

    messages: Annotated[list[UserTurn | AssistantTurn | SystemTurn], Meta(min_length=1)]
    system: str | list[TextBlock] | None = None
    thinking: ThinkingEnabled | ThinkingAdaptive | ThinkingDisabled | None = None
    output_config: OutputConfig | None = None

    tools: Annotated[list[CustomTool], Meta(max_length=128)] | None = None
    tool_choice: AutoChoice | AnyChoice | ToolChoice | NoChoice | None = None

    media_io_kwargs: MediaIO | None = None
    mm_processor_kwargs: ProcessorKwargs | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesRequest(CountTokensRequest, kw_only=True):
    """Hold a prompt, and how it is to be answered."""

    takes_turn: ClassVar[bool] = True

    max_tokens: PositiveInt
    stream: bool | None = False
    stop_sequences: Annotated[list[str], Meta(max_length=64)] | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: TopK | None = None
    metadata: UserMetadata | None = None
    service_tier: Literal["auto", "standard_only"] | None = None

    max_ttft: MaxTTFT | None = None
    return_media_usage: bool | None = None
    priority: Priority | None = None
    slo_ttft: FirstTokenTarget | None = None
    deadline: Deadline | None = None
    resume: Resume | None = None
