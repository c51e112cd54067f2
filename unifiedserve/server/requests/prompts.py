"""Prompts without messages: texts and token ids, one or several."""

import asyncio
from typing import Annotated, Any

from msgspec import Meta

from unifiedserve.errors import RequestError
from unifiedserve.server.errors import refuse_unless
from unifiedserve.server.requests.base import TokenId

TextPrompt = str | Annotated[list[str | TokenId | list[TokenId]], Meta(min_length=1)]

_MOST = 256


async def encoded(given: TextPrompt, param: str, tokenizer: Any, *, special: bool) -> list[list[int]]:
    """Return the token ids of each prompt, texts with the tokens that the tokenizer puts around them if `special`."""
    prompts = separate(given, param)

    def encode(prompt: str | list[int]) -> list[int]:
        if not isinstance(prompt, str):
            return prompt
        ids: list[int] = tokenizer(prompt, add_special_tokens=special)["input_ids"]
        return ids

    return await asyncio.to_thread(lambda: [encode(prompt) for prompt in prompts])


def separate(given: TextPrompt, param: str) -> list[str | list[int]]:
    """Return each prompt; raise RequestError 400 for too many, and for prompts of mixed kinds."""
    if isinstance(given, str):
        return [given]
    kinds = {type(item) for item in given}
    if len(kinds) > 1:
        raise RequestError(f"`{param}` must not mix texts, token ids and lists of token ids.", param=param)
    if kinds == {int}:
        return [[item for item in given if isinstance(item, int)]]
    refuse_unless(len(given) <= _MOST, param, f"`{param}` has {len(given)} prompts; at most {_MOST} are allowed.")
    return [item for item in given if not isinstance(item, int)]
