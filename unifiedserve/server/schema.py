"""What clients may send: OpenAI's chat API as far as it is supported, and vLLM's extensions of it."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

PositiveInt = Annotated[int, Meta(ge=1, le=2**31 - 1)]
PositiveFloat = Annotated[float, Meta(gt=0, le=1e6)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
FrameCount = Annotated[int, Meta(ge=-1, le=2**31 - 1, description="-1: every frame")]


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An object whose unknown fields are an error: a misspelt option must not be silently without effect."""


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


class Function(Strict, omit_defaults=True):
    """`parameters` is a JSON schema."""

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Strict):
    type: Literal["function"]
    function: Function


class FunctionName(Strict):
    name: str


class NamedTool(Strict):
    type: Literal["function"]
    function: FunctionName


class StreamOptions(Strict):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False
    include_obfuscation: bool | None = None


class VideoIO(Strict):
    fps: PositiveFloat | None = None
    num_frames: FrameCount | None = None
    max_frames: PositiveInt | None = None


class MediaIO(Strict):
    video: VideoIO | None = None


class PixelBounds(Strict):
    """Qwen-VL processors' own spelling of min_pixels and max_pixels."""

    shortest_edge: PositiveInt | None = None
    longest_edge: PositiveInt | None = None


class ProcessorKwargs(Strict):
    fps: PositiveFloat | None = None
    num_frames: FrameCount | None = None
    min_pixels: PositiveInt | None = None
    max_pixels: PositiveInt | None = None
    size: PixelBounds | None = None


class PlainText(Strict, tag_field="type", tag="text"):
    pass


class JsonObject(Strict, tag_field="type", tag="json_object"):
    pass


class NamedSchema(Strict):
    """A JSON schema as OpenAI's clients send it; it is always enforced, `strict` or not."""

    name: str
    schema: dict[str, Any] | bool = True
    description: str | None = None
    strict: bool | None = None


class JsonSchema(Strict, tag_field="type", tag="json_schema"):
    json_schema: NamedSchema


ResponseFormat = PlainText | JsonObject | JsonSchema
Schema = Annotated[dict[str, Any] | bool | str, Meta(description="A JSON schema, or its JSON text")]
Choices = Annotated[list[str], Meta(min_length=1, max_length=1024)]


class StructuredOutputs(Strict):
    """vLLM's options for constrained answers: exactly one of the first five."""

    json: Schema | None = None
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    json_object: bool | None = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool | None = None


class ModelRequest(Strict):
    """A request to the model that is served, by its name if given."""

    model: str | None = None


class QueuedRequest(ModelRequest):
    """A request that takes its turn among others."""

    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1, description="The lowest goes first")] | None = None
    deadline: Annotated[float, Meta(gt=0, le=1e6, description="Seconds for the whole answer")] | None = None

    user: str | None = None
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: Literal["auto", "default"] | None = None


class GenerationOptions(QueuedRequest):
    """What every request for generated text may ask for."""

    stream: bool | None = False
    stream_options: StreamOptions | None = None

    max_tokens: PositiveInt | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1, description="0 or -1: all tokens")] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    n: Annotated[int, Meta(ge=1, le=64)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=64)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=1024)] | None = None
    ignore_eos: bool | None = None
    return_token_ids: bool | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None


class ChatRequest(GenerationOptions, kw_only=True):
    messages: Messages
    max_completion_tokens: PositiveInt | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None

    tools: Annotated[list[Tool], Meta(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None

    media_io_kwargs: MediaIO | None = None
    mm_processor_kwargs: ProcessorKwargs | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None


TextPrompt = str | Annotated[list[str | TokenId | list[TokenId]], Meta(min_length=1)]


class CompletionRequest(GenerationOptions, kw_only=True):
    """`prompt` is a text, token ids, or a list of either: then each gets n answers, in order."""

    prompt: TextPrompt
    max_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1, description="0 needs `echo`")] | None = None
    echo: bool | None = None
    best_of: Annotated[int, Meta(ge=1, le=64)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    add_special_tokens: bool | None = None


class EmbeddingRequest(QueuedRequest, kw_only=True):
    """Exactly one of `input`, a text, token ids or a list of either, and `messages`, one input that may have media."""

    input: TextPrompt | None = None
    messages: Messages | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: PositiveInt | None = None
    add_special_tokens: bool | None = None

    media_io_kwargs: MediaIO | None = None
    mm_processor_kwargs: ProcessorKwargs | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = False


Conversation = ChatRequest | EmbeddingRequest


class TokenizeRequest(ModelRequest):
    """Exactly one of `prompt` and `messages` (text only)."""

    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = True
    add_generation_prompt: bool | None = True
    return_token_strs: bool | None = False


class DetokenizeRequest(ModelRequest, kw_only=True):
    tokens: list[TokenId]


# Options of OpenAI's and vLLM's APIs that are not served, with the values at which they ask for nothing.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "add_special_tokens": (None, False),
    "allowed_token_ids": (None,),
    "audio": (None,),
    "bad_words": (None, []),
    "continue_final_message": (None, False),
    "documents": (None,),
    "best_of": (None, 1),
    "echo": (None, False),
    "function_call": (None, "none"),
    "functions": (None, []),
    "guided_decoding_backend": (None,),
    "include_stop_str_in_output": (None, False),
    "length_penalty": (None, 1),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "reasoning_effort": (None,),
    "skip_special_tokens": (None, True),
    "spaces_between_special_tokens": (None, True),
    "store": (None, False),
    "suffix": (None, ""),
    "truncate_prompt_tokens": (None,),
    "use_beam_search": (None, False),
    "verbosity": (None,),
    "web_search_options": (None,),
}
