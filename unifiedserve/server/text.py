"""From a text completion request to the engine's: one for each prompt."""

import asyncio
from typing import Any

import msgspec

from unifiedserve.errors import RequestError
from unifiedserve.messages import GenerateRequest
from unifiedserve.sampling import SamplingParams
from unifiedserve.server.constraint import constraint
from unifiedserve.server.parameters import refuse_unless, sampling_params
from unifiedserve.server.schema import CompletionRequest

_MAX_TOKENS = 16  # OpenAI's default for this endpoint


async def text_requests(asked: CompletionRequest, id: str, tokenizer: Any) -> list[GenerateRequest]:
    """Raises RequestError 400 for prompts of mixed kinds, and for options that contradict each other."""
    sampling = _sampling(asked)
    wanted = constraint(asked)
    prompts = _prompts(asked)
    special = asked.add_special_tokens is not False
    token_ids = await asyncio.to_thread(lambda: [_encode(tokenizer, prompt, special) for prompt in prompts])
    requests = [
        GenerateRequest(
            id=id,
            prompt_token_ids=ids,
            sampling=sampling,
            priority=asked.priority or 0,
            deadline=asked.deadline,
        )
        for ids in token_ids
    ]
    return requests if wanted is None else [wanted.applied_to(request) for request in requests]


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
    refuse_unless(
        not asked.echo or asked.logprobs is None,
        "logprobs",
        "`logprobs` with `echo` is not supported: there are none of the prompt.",
    )
    logprobs = asked.logprobs if best_of == shown else asked.logprobs or 0
    sampling = sampling_params(asked, max_tokens=asked.max_tokens or _MAX_TOKENS, logprobs=logprobs)
    return msgspec.structs.replace(sampling, n=best_of)


def _prompts(asked: CompletionRequest) -> list[str | list[int]]:
    if isinstance(asked.prompt, str):
        return [asked.prompt]
    kinds = {type(item) for item in asked.prompt}
    if len(kinds) > 1:
        raise RequestError("`prompt` must not mix texts, token ids and lists of token ids.", param="prompt")
    if kinds == {int}:
        return [[item for item in asked.prompt if isinstance(item, int)]]
    return [item for item in asked.prompt if not isinstance(item, int)]


def _encode(tokenizer: Any, prompt: str | list[int], special: bool) -> list[int]:
    if not isinstance(prompt, str):
        return prompt
    ids: list[int] = tokenizer(prompt, add_special_tokens=special)["input_ids"]
    return ids
