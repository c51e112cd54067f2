"""Tell what every reply carries: who answers, and how many tokens it took."""

import time
from typing import Any

import msgspec

from unifiedserve import __version__
from unifiedserve.messages.api import Delta
from unifiedserve.messages.seen import SeenMedium


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    media: list[SeenMedium] | msgspec.UnsetType = msgspec.UNSET


def identity(id: str, model: str) -> dict[str, Any]:
    """Return the fields with which every object of a reply begins."""
    return {
        "id": id,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": f"unifiedserve-{__version__}",
    }


class Tally:
    """Count tokens so far of prompts that have so many answers each."""

    def __init__(self, answers_per_prompt: int) -> None:
        self._answers_per_prompt = answers_per_prompt
        self._prompt_tokens: dict[int, int] = {}
        self._cached_tokens: dict[int, int] = {}
        self._generated: dict[int, int] = {}
        self._media: list[SeenMedium] | msgspec.UnsetType = msgspec.UNSET

    def add(self, delta: Delta) -> None:
        prompt = delta.index // self._answers_per_prompt
        self._prompt_tokens[prompt] = delta.prompt_tokens
        self._cached_tokens[prompt] = delta.cached_tokens
        self._generated[delta.index] = delta.generated_tokens
        if delta.media is not None:
            self._media = delta.media

    def usage(self) -> Usage:
        prompt, generated = sum(self._prompt_tokens.values()), sum(self._generated.values())
        cached = PromptTokensDetails(sum(self._cached_tokens.values()))
        return Usage(prompt, generated, prompt + generated, cached, self._media)
