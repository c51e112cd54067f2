"""Define a lane: stages that take turns in one worker's loop (vision, or the language stages)."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from unifiedserve.messages.wire import Abort, Message
from unifiedserve.placement import Stage

AT_ONCE = float("-inf")
ON_MESSAGE = float("inf")


class Lane(Protocol):
    """Define what the worker's loop needs of its stages."""

    def accept(self, message: Message) -> None:
        """Take a message in; those for other lanes are ignored."""

    def step(self) -> float:
        """Schedule and do one step; return the time (monotonic seconds) for the next, `AT_ONCE` or `ON_MESSAGE`."""

    def drop(self, abort: Abort) -> None:
        """Release what `abort`'s stage, if it is in this lane, holds of its request."""

    def held(self, stage: Stage) -> Mapping[str, Sequence[int]]:
        """Return the pages that a stage holds, by pool: each as often as it holds a reference.

        Pages are left out that no other request can share yet.
        """

    def counts(self) -> dict[Stage, tuple[int, int]]:
        """Return how many requests run and wait in each stage."""

    def close(self) -> None:
        """Stop what runs beside the loop."""
