"""Make the engine's requests: their turn, and sampling parameters, checked against each other."""

from typing import Any

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.messages.api import GenerateRequest
from unifiedserve.messages.sampling_params import ParamError, SamplingParams
from unifiedserve.server.errors import refuse_unless
from unifiedserve.server.requests.base import QueuedRequest
from unifiedserve.server.requests.constraint import Constraint
from unifiedserve.server.requests.generation import GenerationOptions, StreamOptions

_CONVERTED = {"max_tokens", "stop", "stop_token_ids", "logit_bias"}
_SAME = set(SamplingParams.__struct_fields__) & set(GenerationOptions.__struct_fields__) - _CONVERTED


def sampling_params(
    options: GenerationOptions, defaults: SamplingParams, *, max_tokens: int | None, logprobs: int | None
) -> SamplingParams:
    """Return the sampling parameters of a request: what it does not name is as in `defaults`.

    Raises RequestError 400 for values out of range or that contradict each other.
    """
    refuse_unless(
        bool(options.stream) or not _wants(options.stream_options),
        "stream_options",
        "`stream_options` needs `stream`: true.",
    )
    refuse_unless(
        options.prompt_logprobs is None or not options.stream,
        "prompt_logprobs",
        "`prompt_logprobs` contradicts `stream`: chunks have no place for them.",
    )
    given = {name: value for name in _SAME if (value := getattr(options, name)) is not None}
    if options.top_p == 0:
        given |= {"top_p": 1.0, "temperature": 0.0}
    params = msgspec.structs.replace(
        defaults,
        **given,
        max_tokens=max_tokens,
        stop=(options.stop,) if isinstance(options.stop, str) else tuple(options.stop or ()),
        stop_token_ids=tuple(options.stop_token_ids or ()),
        logit_bias=_logit_bias(options.logit_bias or {}),
        logprobs=logprobs,
    )
    try:
        params.check()
    except ParamError as error:
        raise RequestError(f"{error}.", param=error.param) from None
    return params


def _wants(options: StreamOptions | None) -> bool:
    return options is not None and any(msgspec.structs.astuple(options))


def engine_request(
    asked: QueuedRequest, id: str, sampling: SamplingParams, wanted: Constraint | None = None, **prompt: Any
) -> GenerateRequest:
    """Return the engine's request; `prompt` are its fields that say what is to be answered."""
    request = GenerateRequest(
        id=id,
        sampling=sampling,
        priority=asked.priority or 0,
        slo_ttft=asked.slo_ttft / 1000 if asked.slo_ttft else None,
        deadline=asked.deadline,
        **prompt,
    )
    if isinstance(asked, GenerationOptions):
        request.resume = asked.resume or []
    if wanted is not None:
        request.sampling = msgspec.structs.replace(sampling, grammar=wanted.grammar)
        request.grammar_param = wanted.param
    return request


def _logit_bias(biases: dict[str, float]) -> dict[int, float]:
    for token in biases:
        known = token.isascii() and token.isdecimal() and len(token) < 10
        refuse_unless(known, "logit_bias", f"`logit_bias` has {token!r}, which is not a token id.")
    return {int(token): bias for token, bias in biases.items()}
