"""Define what is sent: requests of one or more turns, and what is known about a right answer."""

from typing import Literal

import msgspec

MediumKind = Literal["image", "video"]


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Hold a piece of a turn's text."""

    text: str


class Medium(msgspec.Struct, frozen=True, kw_only=True, tag="medium"):
    """Name an image or a video of a turn: a local file.

    Of a video `seconds` is the length, and [start, end) the part asked about (None: all of it).
    """

    kind: MediumKind
    path: str
    seconds: float = 0.0
    start: float | None = None
    end: float | None = None


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the answers to choose from, and the index of the right one (None: it is not public)."""

    choices: tuple[str, ...]
    right: int | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a user's message and the length of the answer to it.

    The answer has exactly `max_tokens` tokens if `exact`, else at most so many. The turn is sent `pause` seconds after
    the answer before has ended.
    """

    parts: tuple[Text | Medium, ...]
    max_tokens: int
    exact: bool = True
    pause: float = 0.0
    expected: Expected | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a conversation that begins with its arrival; most have one turn.

    `kind` groups it in reports: text, image, …
    """

    id: str
    kind: str
    turns: tuple[Turn, ...]


class Arrival(msgspec.Struct, frozen=True):
    """Hold a request and its due time, in seconds after the run's start."""

    at: float
    request: Request
