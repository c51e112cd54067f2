"""Define requests to /v1/responses: OpenAI's fields as far as they are supported, and videos."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from unifiedserve.messages.sampling_params import Temperature
from unifiedserve.server.chat.request import FunctionName
from unifiedserve.server.requests.base import PositiveInt, QueuedRequest, Resume, Strict
from unifiedserve.server.requests.formats import JsonObject, NamedSchema, PlainText
from unifiedserve.server.requests.generation import Share
from unifiedserve.server.requests.media_options import MaxTTFT, MediaIO, ProcessorKwargs
from unifiedserve.server.requests.messages import FileId, Frames, Rate


class InputText(Strict, tag_field="type", tag="input_text"):
    text: str


class InputImage(Strict, tag_field="type", tag="input_image"):
    """Name an image, by its URL or the id of an uploaded file."""

    image_url: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None
    file_id: FileId | None = None


class InputVideo(Strict, tag_field="type", tag="input_video"):
    """Name a video, by its URL or the id of an uploaded file: an extension of OpenAI's API."""

    video_url: str | Frames | None = None
    file_id: FileId | None = None
    fps: Rate | None = None


class InputFile(Strict, tag_field="type", tag="input_file"):
    """Name an image or a video: by an uploaded file's id, a `data:` URL, or its URL."""

    file_id: FileId | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None


class OutputText(Strict, tag_field="type", tag="output_text"):
    """Hold text of an earlier answer, as clients send it back."""

    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None
    parsed: Any = None


class Refusal(Strict, tag_field="type", tag="refusal"):
    refusal: str


Content = InputText | InputImage | InputVideo | InputFile | OutputText | Refusal


class ReasoningText(Strict, tag_field="type", tag="reasoning_text"):
    text: str


class MessageItem(Strict, tag_field="type", tag="message"):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Content]
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class ReasoningItem(Strict, tag_field="type", tag="reasoning"):
    content: list[ReasoningText] | None = None
    summary: list[Any] | None = None
    encrypted_content: None = None
    id: str | None = None
    status: str | None = None


class FunctionCallItem(Strict, tag_field="type", tag="function_call"):
    """Hold a call of a function. `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str
    parsed_arguments: Any = None
    id: str | None = None
    status: str | None = None


class FunctionOutputItem(Strict, tag_field="type", tag="function_call_output"):
    call_id: str
    output: str | list[Content]
    id: str | None = None
    status: str | None = None


InputItem = MessageItem | ReasoningItem | FunctionCallItem | FunctionOutputItem


class FunctionTool(Strict):
    type: Literal["function"]
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class NamedFunction(FunctionName):
    type: Literal["function"]


class SchemaFormat(NamedSchema, tag_field="type", tag="json_schema"):
    pass


class TextOptions(Strict):
    format: PlainText | JsonObject | SchemaFormat | None = None
    verbosity: Literal["medium"] | None = None


class Reasoning(Strict):
    unsupported: ClassVar[Mapping[str, Collection[Any]]] = {"summary": (None,), "generate_summary": (None,)}

    effort: str | None = None


class ObfuscationOptions(Strict):
    include_obfuscation: bool | None = None


# Fields that answers have in any case, or that only tools of OpenAI's would leave behind.
Included = Literal[
    "reasoning.encrypted_content",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "code_interpreter_call.outputs",
    "web_search_call.action.sources",
    "web_search_call.results",
]
# Options of OpenAI's API that are not served, with the values at which they ask for nothing.
_UNSUPPORTED: dict[str, Collection[Any]] = {
    **Strict.unsupported,
    "background": (None, False),
    "conversation": (None,),
    "max_tool_calls": (None,),
    "prompt": (None,),
    "prompt_cache_retention": (None, "in_memory", "in-memory"),
    "top_logprobs": (None, 0),
    "truncation": (None, "disabled"),
}


class ResponsesRequest(QueuedRequest, kw_only=True):
    """Ask for a response. `input` is a text or a conversation's items; a message among them may lack its type."""

    unsupported: ClassVar[Mapping[str, Collection[Any]]] = _UNSUPPORTED

    input: str | Annotated[list[dict[str, Any]], Meta(min_length=1)]
    previous_response_id: str | None = None
    store: bool | None = None
    instructions: str | None = None
    max_output_tokens: PositiveInt | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    stream: bool | None = False
    stream_options: ObfuscationOptions | None = None
    include: list[Included] | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None

    tools: Annotated[list[FunctionTool], Meta(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | None = None
    parallel_tool_calls: bool | None = None

    media_io_kwargs: MediaIO | None = None
    mm_processor_kwargs: ProcessorKwargs | None = None
    max_ttft: MaxTTFT | None = None
    return_media_usage: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    resume: Resume | None = None
