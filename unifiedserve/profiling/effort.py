"""Choose how much is measured: sizes, repetitions, seconds."""

import time
from collections.abc import Iterator
from typing import NamedTuple


class Effort(NamedTuple):
    """Size the questions to a server that is measured. Tokens; sequences with the context of each; pixels; seconds.

    A question is asked up to `repeats` times, but not again after `seconds`: what takes long varies less.
    """

    repeats: int
    seconds: float
    prompts: tuple[int, ...]
    batches: tuple[tuple[int, int], ...]
    answer: int
    pixels: tuple[int, ...]
    frames: int
    pair_seconds: float

    def rounds(self) -> Iterator[int]:
        """Yield the number of each repetition of a question."""
        begun = time.monotonic()
        for number in range(self.repeats):
            if number and time.monotonic() - begun >= self.seconds:
                return
            yield number


FULL = Effort(
    repeats=3,
    seconds=15.0,
    prompts=(48, 128, 256, 512, 2048),
    batches=((1, 64), (4, 64), (8, 64), (16, 64), (1, 2048), (2, 1024)),
    answer=96,
    pixels=(12_544, 50_176, 200_704),
    frames=64,
    pair_seconds=6.0,
)
QUICK = Effort(
    repeats=1,
    seconds=15.0,
    prompts=(48, 256, 1024),
    batches=((1, 64), (4, 64), (1, 1024)),
    answer=32,
    pixels=(12_544, 50_176),
    frames=16,
    pair_seconds=0.5,
)
