"""Define requests to /v1/completions."""

from typing import Annotated

from msgspec import Meta

from unifiedserve.messages.sampling_params import INT_LIMIT, ChoiceCount, LogprobCount
from unifiedserve.server.requests.generation import GenerationOptions
from unifiedserve.server.requests.prompts import TextPrompt


class CompletionRequest(GenerationOptions, kw_only=True):
    """Ask for completions. `prompt` is a text, token ids, or a list of either: then each gets n answers, in order."""

    prompt: TextPrompt
    max_tokens: Annotated[int, Meta(ge=0, le=INT_LIMIT, description="0 needs `echo`")] | None = None
    echo: bool | None = None
    best_of: ChoiceCount | None = None
    logprobs: LogprobCount | None = None
    add_special_tokens: bool | None = None
