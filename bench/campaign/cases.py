"""What is tried: cases, each of which is made anew from a seed and its number."""

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import NamedTuple

import httpx
import msgspec

DEADLINE = 90.0  # seconds that any case may take: what takes longer hangs


class ViolationError(Exception):
    """The server did what it must not; says what."""


class Target(NamedTuple):
    """The server that is tried, with a client for requests that keep to HTTP."""

    http: httpx.AsyncClient
    host: str
    port: int
    model: str
    context: int  # tokens
    key: str = ""
    pid: int = 0  # of the process that answers HTTP


class Seen(NamedTuple):
    """How a case ended: a status, or a word for connections that ended without one."""

    status: str
    note: str = ""


Act = Callable[[Target, Random], Awaitable[Seen]]


class Kind(NamedTuple):
    """Cases of one kind: how often they come beside others, and what they do."""

    name: str
    weight: float
    act: Act


class Part(NamedTuple):
    """Kinds of cases that are tried together, so many at once; `always`: even if time is up.

    `options` are those of a daemon of their own.
    """

    name: str
    kinds: Sequence[Kind]
    at_once: int
    always: bool = False
    options: Sequence[str] = ()

    def kind_of(self, seed: int, index: int) -> Kind:
        """Return the kind of a case: each once at first, then by their weights."""
        if index < len(self.kinds):
            return self.kinds[index]
        return self.random(seed, index).choices(self.kinds, [kind.weight for kind in self.kinds])[0]

    def random(self, seed: int, index: int) -> Random:
        """Return what a case draws from."""
        return Random(f"{seed}:{self.name}:{index}")


class Outcome(msgspec.Struct):
    """What became of a case, and when, on the monotonic clock."""

    part: str
    index: int
    kind: str
    began: float
    ended: float
    status: str
    note: str = ""
    violation: str = ""

    @property
    def name(self) -> str:
        """As `--case` takes it."""
        return f"{self.part}:{self.index}"
