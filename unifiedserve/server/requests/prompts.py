"""Read prompts without messages: texts and token ids, one or several."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from unifiedserve.errors import RequestError
from unifiedserve.models.text import TooLongError
from unifiedserve.server.errors import refuse_unless
from unifiedserve.server.protocol import ServingEngine
from unifiedserve.server.requests.base import TokenId

TextPrompt = str | Annotated[list[str | TokenId | list[TokenId]], Meta(min_length=1)]

R = TypeVar("R")

_MOST = 256
_LONG = 1 << 16  # characters of a text that takes long
_MANY = 1000  # parts of a body that take long
_LONG_TEXTS = ThreadPoolExecutor(1, "long-texts")


async def encoded(given: TextPrompt, param: str, engine: ServingEngine, *, special: bool) -> list[list[int]]:
    """Return the token ids of each prompt. Texts get the tokens that the tokenizer puts around them if `special`.

    Raises RequestError 400 for a text of far more tokens than the context holds.
    """
    text, limit = engine.processor.chat.text, engine.max_model_len
    ids = []
    for number, prompt in enumerate(prompts := separate(given, param)):
        where = _place(param, number, len(prompts))
        if isinstance(prompt, str):
            encode = partial(text.encode, prompt, limit, special=special)
            ids.append(await beside(len(prompt), within(limit, where, encode)))
        elif len(prompt) > limit:
            raise RequestError(
                f"`{where}` has {len(prompt)} tokens; the context holds {limit}.",
                param=where,
                code="context_length_exceeded",
            )
        else:
            ids.append(prompt)
    return ids


def prompts_of(token_ids: list[list[int]], param: str) -> list[dict[str, Any]]:
    """Return the engine's request fields for each prompt, and where the client has it."""
    count = len(token_ids)
    return [{"prompt_token_ids": ids, "prompt_param": _place(param, i, count)} for i, ids in enumerate(token_ids)]


def _place(param: str, number: int, prompts: int) -> str:
    return param if prompts == 1 else f"{param}[{number}]"


async def beside(characters: int, work: Callable[[], R]) -> R:
    """Return what `work` on so many characters returns, done beside the event loop.

    Long texts wait for each other. Work that has not begun when the caller is cancelled never does.
    """
    executor = _LONG_TEXTS if characters > _LONG else None
    return await asyncio.get_running_loop().run_in_executor(executor, work)


async def unless_few(parts: int, work: Callable[[], R]) -> R:
    """Return what `work` on some parts returns, beside the event loop unless they are few."""
    return await asyncio.to_thread(work) if parts > _MANY else work()


def within(limit: int, param: str, encode: Callable[[], R]) -> Callable[[], R]:
    """Return a function that does the same, and raises RequestError 400 in place of TooLongError."""

    def limited() -> R:
        try:
            return encode()
        except TooLongError as error:
            message = f"`{param}` has {error.described} tokens; at most {limit} are allowed."
            raise RequestError(message, param=param, code="context_length_exceeded") from None

    return limited


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
