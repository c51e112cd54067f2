"""A lane: stages that take turns in one worker's loop (vision, or the language stages)."""

from typing import Protocol

from unifiedserve.config import Stage
from unifiedserve.messages import Message

AT_ONCE = float("-inf")
ON_MESSAGE = float("inf")


class Lane(Protocol):
    """What the worker's loop needs of its stages."""

    def accept(self, message: Message) -> None:
        """Take a message in; those for other lanes are ignored."""

    def step(self) -> float:
        """Schedule and do one step; the time (monotonic seconds) for the next one, `AT_ONCE` or `ON_MESSAGE`."""

    def drop(self, uid: int, index: int | None = None) -> None:
        """Forget a request, or one answer of it, and release all that it holds here."""

    def counts(self) -> dict[Stage, tuple[int, int]]:
        """Requests running and waiting in each stage."""

    def close(self) -> None:
        """Stop what runs beside the loop."""
