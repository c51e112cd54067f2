"""Describe what comes to a simulated engine, and what it has for it."""

from dataclasses import dataclass
from typing import NamedTuple

from unifiedserve.messages.ticket import Ticket


class Arrival(NamedTuple):
    """Describe a request that comes.

    It has text tokens before each unit and behind the last, the units' visual tokens, and the number of tokens it
    generates. Its ticket says when it comes (seconds). Decoding a unit of its media takes a core `decode` seconds; a
    GOP of a video holds `gop` units, 0: they are images. Each unit fills `patch_pages` pages of the patch buffer.
    `media` are the images and videos that its units are parts of. `target` are the seconds to its first token if it has
    its own.
    """

    ticket: Ticket
    gaps: list[int]
    units: list[int]
    generate: int
    decode: float = 0.0
    gop: int = 0
    patch_pages: int = 1
    media: int = 0
    target: float | None = None


@dataclass(slots=True)
class FreePages:
    """Count the free pages of the three buffers. One of the visual buffer has room for so many tokens of one unit."""

    kv: int
    visual: int
    patch: int
    visual_page_tokens: int = 16


class Rules(NamedTuple):
    """State what the model's family demands: chunks that end within no unit, or visual tokens kept for decode.

    Kept ones are no part of the prompt, which needs all of them from its start. Without `overlap` they all are encoded
    before it is prefilled.
    """

    whole_units: bool = False
    keeps_visual: bool = False
    overlap: bool = True
