"""Count the pages that something holds."""

from collections.abc import Sequence
from typing import NamedTuple


class Held(NamedTuple):
    """Count pages of the KV cache and visual buffer. Each counts once per reference to give back."""

    kv: Sequence[int] = ()
    visual: Sequence[int] = ()
