"""What requests to the engine have in common: their turn, and sampling parameters, checked against each other."""

from typing import Any

from unifiedserve.errors import RequestError
from unifiedserve.messages import GenerateRequest
from unifiedserve.sampling import ParamError, SamplingParams
from unifiedserve.server.schema import GenerationOptions, QueuedRequest

_CONVERTED = {"max_tokens", "stop", "stop_token_ids", "logit_bias"}
_SAME = set(SamplingParams.__struct_fields__) & set(GenerationOptions.__struct_fields__) - _CONVERTED


def sampling_params(options: GenerationOptions, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
    """Raises RequestError 400 for values that are out of range or contradict each other."""
    refuse_unless(
        options.stream_options is None or bool(options.stream),
        "stream_options",
        "`stream_options` needs `stream`: true.",
    )
    refuse_unless(
        options.prompt_logprobs is None or not options.stream,
        "prompt_logprobs",
        "`prompt_logprobs` contradicts `stream`: chunks have no place for them.",
    )
    given = {name: value for name in _SAME if (value := getattr(options, name)) is not None}
    params = SamplingParams(
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


def engine_request(asked: QueuedRequest, id: str, sampling: SamplingParams, **prompt: Any) -> GenerateRequest:
    """`prompt` are the fields of a GenerateRequest that say what is to be answered."""
    return GenerateRequest(id=id, sampling=sampling, priority=asked.priority or 0, deadline=asked.deadline, **prompt)


def refuse_unless(consistent: bool, param: str, message: str) -> None:
    """Raises RequestError 400 that names `param`."""
    if not consistent:
        raise RequestError(message, param=param)


def _logit_bias(biases: dict[str, float]) -> dict[int, float]:
    for token in biases:
        known = token.isascii() and token.isdecimal() and len(token) < 10
        refuse_unless(known, "logit_bias", f"`logit_bias` has {token!r}, which is not a token id.")
    return {int(token): bias for token, bias in biases.items()}
