"""From a text completion request to the engine's: one for each prompt."""

import asyncio
from typing import Any

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.messages import GenerateRequest
from unifiedserve.sampling import SamplingParams
from unifiedserve.server.constraint import constraint
from unifiedserve.server.parameters import engine_request, refuse_unless, sampling_params
from unifiedserve.server.schema import CompletionRequest

_MAX_TOKENS = 16  # OpenAI's default for this endpoint
_MOST_PROMPTS = 256


async def text_requests(asked: CompletionRequest, id: str, tokenizer: Any) -> list[GenerateRequest]:
    """Raises RequestError 400 for prompts of mixed kinds, and for options that contradict each other."""
    sampling = _sampling(asked)
    wanted = constraint(asked)
    prompts = _prompts(asked)
    special = asked.add_special_tokens is not False
    token_ids = await asyncio.to_thread(lambda: [_encode(tokenizer, prompt, special) for prompt in prompts])
    return [engine_request(asked, id, sampling, wanted, prompt_token_ids=ids) for ids in token_ids]


def echoes(asked: CompletionRequest, tokenizer: Any) -> list[str]:
    """The text that the answers to each prompt begin with."""
    if not asked.echo:
        return [""] * len(_prompts(asked))
    return [prompt if isinstance(prompt, str) else tokenizer.decode(prompt) for prompt in _prompts(asked)]


def _sampling(asked: CompletionRequest) -> SamplingParams:
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
    sampling = sampling_params(asked, max_tokens=max_tokens, logprobs=logprobs)
    echoed = asked.logprobs if asked.echo else None
    counts = [count for count in (asked.prompt_logprobs, echoed) if count is not None]
    return msgspec.structs.replace(sampling, n=best_of, prompt_logprobs=max(counts, default=None))


def _prompts(asked: CompletionRequest) -> list[str | list[int]]:
    if isinstance(asked.prompt, str):
        return [asked.prompt]
    kinds = {type(item) for item in asked.prompt}
    if len(kinds) > 1:
        raise RequestError("`prompt` must not mix texts, token ids and lists of token ids.", param="prompt")
    if kinds == {int}:
        return [[item for item in asked.prompt if isinstance(item, int)]]
    refuse_unless(len(asked.prompt) <= _MOST_PROMPTS, "prompt", f"`prompt` has more than {_MOST_PROMPTS} prompts.")
    return [item for item in asked.prompt if not isinstance(item, int)]


def _encode(tokenizer: Any, prompt: str | list[int], special: bool) -> list[int]:
    if not isinstance(prompt, str):
        return prompt
    ids: list[int] = tokenizer(prompt, add_special_tokens=special)["input_ids"]
    return ids
