"""Log probabilities as JSON has them, and lists of pieces of an answer in one."""

from collections.abc import Iterable, Sequence
from typing import TypeVar, cast

import msgspec

from unifiedserve.messages.api import TokenLogprob
from unifiedserve.models.token_bytes import TokenBytes

T = TypeVar("T")

_LOWEST = -9999.0  # JSON has no infinity


class PromptLogprob(msgspec.Struct):
    """Show a prompt token's log probability. `rank` counts from 1, in the model's whole distribution."""

    logprob: float
    rank: int
    decoded_token: str


# Of each of a prompt's tokens the token itself and the likeliest ones in its place, by token id; None of the first.
PromptLogprobs = list[dict[int, PromptLogprob] | None]


def prompt_logprobs(entries: Sequence[TokenLogprob], tokens: TokenBytes, count: int | None = None) -> PromptLogprobs:
    """Return them with `count` of the likeliest tokens each; all that there are if it is None."""

    def described(token: int, logprob: float, rank: int) -> tuple[int, PromptLogprob]:
        return token, PromptLogprob(finite(logprob), rank, tokens[token].text)

    described_entries: PromptLogprobs = []
    for entry in entries:
        if entry.logprob is None or entry.rank is None:
            described_entries.append(None)
            continue
        top = [described(token, logprob, rank) for rank, (token, logprob) in enumerate(entry.top[:count], 1)]
        described_entries.append(encoded(dict([described(entry.token, entry.logprob, entry.rank), *top])))
    return described_entries


def encoded(value: T) -> T:
    """Return a value as its JSON: the million candidates of an answer must not be encoded at once."""
    return cast(T, msgspec.Raw(msgspec.json.encode(value)))


def finite(logprob: float) -> float:
    return max(logprob, _LOWEST)


def joined(parts: Iterable[Sequence[T] | None]) -> list[T] | None:
    """Join the lists in one; None if there are none."""
    given = [part for part in parts if part is not None]
    return [item for part in given for item in part] if given else None
