"""Answers beside a culprit: they must be what they are without it, token for token."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from bench.campaign.asking import TEXTS
from bench.campaign.cases import Seen, Target, ViolationError

_PROMPTS = ("A river", "Once upon a time", "The star is", "1 2 3 4")
_TOKENS = 2000
_BEGUN_SECONDS = 0.5  # after which answers are under way
Culprit = Callable[[Target, Random], Awaitable[Seen]]


def among_bystanders(culprit: Culprit) -> Culprit:
    """Return what runs a culprit while others are answered, whose answers must be exact."""

    async def act(target: Target, random: Random) -> Seen:
        right = await _answers(target)
        answering = asyncio.create_task(_answers(target))
        await asyncio.sleep(_BEGUN_SECONDS)
        if answering.done():
            raise ViolationError("the bystanders were answered before the culprit came")
        seen = await culprit(target, random)
        for prompt, before, now in zip(_PROMPTS, right, await answering, strict=True):
            if now != before:
                raise ViolationError(f"{prompt!r} was answered otherwise: {_difference(before, now)}")
        return seen

    return act


async def _answers(target: Target) -> list[str]:
    return await asyncio.gather(*(_answer(target, prompt) for prompt in _PROMPTS))


async def _answer(target: Target, prompt: str) -> str:
    """Return the likeliest answer; raise ViolationError for one that does not come whole."""
    body: dict[str, Any] = {"prompt": prompt, "max_tokens": _TOKENS, "temperature": 0, "ignore_eos": True}
    response = await target.http.post(TEXTS, json=body)
    if response.is_error:
        raise ViolationError(f"a bystander got {response.status_code}: {response.text[:300]}")
    return str(response.json()["choices"][0]["text"])


def _difference(before: str, now: str) -> str:
    place = next((i for i, (one, other) in enumerate(zip(before, now, strict=False)) if one != other), len(now))
    return f"{now[place : place + 40]!r} in place of {before[place : place + 40]!r} at character {place}"
