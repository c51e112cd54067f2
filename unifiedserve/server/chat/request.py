"""Define requests to /v1/chat/completions.

They have OpenAI's fields as far as they are supported, and vLLM's extensions.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from unifiedserve.messages.sampling_params import LogprobCount
from unifiedserve.server.requests.base import PositiveInt, Strict
from unifiedserve.server.requests.generation import GenerationOptions
from unifiedserve.server.requests.media_options import MaxTTFT, MediaIO, ProcessorKwargs
from unifiedserve.server.requests.messages import Messages


class Function(Strict, omit_defaults=True):
    """Describe a function. `parameters` is a JSON schema."""

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


class ChatRequest(GenerationOptions, kw_only=True):
    messages: Messages
    max_completion_tokens: PositiveInt | None = None
    logprobs: bool | None = None
    top_logprobs: LogprobCount | None = None

    reasoning_effort: str | None = None

    tools: Annotated[list[Tool], Meta(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None

    media_io_kwargs: MediaIO | None = None
    mm_processor_kwargs: ProcessorKwargs | None = None
    max_ttft: MaxTTFT | None = None
    return_media_usage: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
