"""Define requests to /v1/embeddings."""

from typing import Any, Literal

from unifiedserve.server.requests.base import PositiveInt, QueuedRequest
from unifiedserve.server.requests.media_options import MediaIO, ProcessorKwargs
from unifiedserve.server.requests.messages import Messages
from unifiedserve.server.requests.prompts import TextPrompt


class EmbeddingRequest(QueuedRequest, kw_only=True):
    """Give one of `input` and `messages`.

    `input` is a text, token ids or a list of either; `messages` are one input, maybe with media.
    """

    input: TextPrompt | None = None
    messages: Messages | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: PositiveInt | None = None
    add_special_tokens: bool | None = None

    media_io_kwargs: MediaIO | None = None
    mm_processor_kwargs: ProcessorKwargs | None = None
    return_media_usage: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = False
    continue_final_message: bool | None = None
