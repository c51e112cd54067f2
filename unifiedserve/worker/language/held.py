"""The pages that something holds."""

from collections.abc import Sequence
from typing import NamedTuple


class Held(NamedTuple):
    """Pages of the KV cache and of the visual buffer, each as often as there is a reference to give back."""

    kv: Sequence[int] = ()
    visual: Sequence[int] = ()
