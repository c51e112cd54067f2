"""Convert a text completion request to the engine's: one for each prompt."""

from typing import Any

import msgspec

from unifiedserve.messages.api import GenerateRequest
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.server.completions.request import CompletionRequest
from unifiedserve.server.errors import refuse_unless
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.requests.constraint import constraint
from unifiedserve.server.requests.prompts import encoded, prompts_of, separate
from unifiedserve.server.requests.sampling import engine_request, sampling_params

_MAX_TOKENS = 16  # OpenAI's default for this endpoint
_MOST_ANSWERS = 1024  # of a request: all of them are one body in the end


async def text_requests(asked: CompletionRequest, id: str, engine: ServingEngine) -> list[GenerateRequest]:
    """Return one request a prompt.

    Raises RequestError 400 for prompts of mixed kinds, and for options that contradict each other.
    """
    sampling = _sampling(asked, engine.sampling_defaults)
    wanted = constraint(asked)
    token_ids = await encoded(asked.prompt, "prompt", engine, special=asked.add_special_tokens is not False)
    refuse_unless(
        len(token_ids) * sampling.n <= _MOST_ANSWERS,
        "n",
        f"{len(token_ids)} prompts with {sampling.n} answers each are more than {_MOST_ANSWERS} answers.",
    )
    requests = [engine_request(asked, id, sampling, wanted, **prompt) for prompt in prompts_of(token_ids, "prompt")]
    begun = asked.resume or []
    refuse_unless(len(begun) <= len(requests) * sampling.n, "resume", f"`resume` has {len(begun)} answers: too many.")
    for number, request in enumerate(requests):
        request.resume = begun[number * sampling.n : (number + 1) * sampling.n]
    return requests


def echoes(asked: CompletionRequest, tokenizer: Any) -> list[str]:
    """Return the text that the answers to each prompt begin with."""
    prompts = separate(asked.prompt, "prompt")
    if not asked.echo:
        return [""] * len(prompts)
    return [prompt if isinstance(prompt, str) else tokenizer.decode(prompt) for prompt in prompts]


def _sampling(asked: CompletionRequest, defaults: SamplingParams) -> SamplingParams:
    shown = asked.n or 1
    best_of = asked.best_of or shown
    refuse_unless(best_of >= shown, "best_of", f"`best_of` is {best_of}, but must be at least `n`, which is {shown}.")
    refuse_unless(
        best_of == shown or not asked.stream,
        "best_of",
        "`best_of` above `n` contradicts `stream`: which answers are best is known at the end.",
    )
    max_tokens = _MAX_TOKENS if asked.max_tokens is None else asked.max_tokens
    refuse_unless(max_tokens > 0 or bool(asked.echo), "max_tokens", "`max_tokens` 0 needs `echo`: nothing is left.")
    logprobs = asked.logprobs if best_of == shown else asked.logprobs or 0
    sampling = sampling_params(asked, defaults, max_tokens=max_tokens, logprobs=logprobs)
    echoed = asked.logprobs if asked.echo else None
    counts = [count for count in (asked.prompt_logprobs, echoed) if count is not None]
    return msgspec.structs.replace(sampling, n=best_of, prompt_logprobs=max(counts, default=None))
