"""What a worker shows of itself while it works."""

from collections.abc import Iterable

from unifiedserve.memory.pulses import Pulses


class Pulse:
    """The signs of life of one worker, for the engine to watch."""

    def __init__(self, pulses: Pulses, instance: str) -> None:
        self._pulses = pulses
        self._instance = instance
        self._uids: set[int] = set()

    def begin_turn(self) -> None:
        """Show that the loop goes round."""
        self._pulses.begin_turn(self._instance)

    def wait(self) -> None:
        """Show that the loop waits for messages."""
        self._pulses.wait(self._instance)

    def work_on(self, uids: Iterable[int]) -> None:
        """Show whose fault it may be if the worker ends from now on."""
        uids = set(uids)
        if uids != self._uids:
            self._uids = uids
            self._pulses.work_on(self._instance, uids)
