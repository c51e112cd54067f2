"""Define what every request for generated text may ask for."""

from typing import Annotated

from msgspec import Meta

from unifiedserve.messages.sampling_params import (
    Bias,
    ChoiceCount,
    LogprobCount,
    MinP,
    Penalty,
    RepetitionPenalty,
    Seed,
    Temperature,
    TokenCount,
    TopK,
)
from unifiedserve.server.requests.base import PositiveInt, QueuedRequest, Resume, Strict, TokenId
from unifiedserve.server.requests.formats import Choices, ResponseFormat, Schema, StructuredOutputs

Share = Annotated[float, Meta(ge=0, le=1, description="0: the likeliest token alone")]


class StreamOptions(Strict):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False
    include_obfuscation: bool | None = None


class GenerationOptions(QueuedRequest):
    """Set options of every request for generated text."""

    stream: bool | None = False
    stream_options: StreamOptions | None = None

    max_tokens: PositiveInt | None = None
    min_tokens: TokenCount | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    n: ChoiceCount | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    stop: str | Annotated[list[str], Meta(max_length=64)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=1024)] | None = None
    ignore_eos: bool | None = None
    return_token_ids: bool | None = None
    logit_bias: dict[str, Bias] | None = None
    prompt_logprobs: LogprobCount | None = None

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None

    resume: Resume | None = None
