"""Tell the workers that outlive another what to do, and wait until it is done."""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from unifiedserve.messages.wire import Heard, Message

OnEnd = Callable[[str, Heard | None], None]  # an instance, and its answer


@dataclass(eq=False)
class _Round:
    """Send a message to several instances, until each of them has answered or died."""

    waiting: set[str]
    on_end: OnEnd
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, instance: str, answer: Heard | None) -> None:
        """Note that an instance has answered, or never will (None): all that it has sent is known."""
        if instance not in self.waiting:
            return
        self.on_end(instance, answer)
        self.waiting.discard(instance)
        if not self.waiting:
            self.over.set()


class Survivors:
    """Tell instances something and wait until all have heard. Belongs to the engine's event loop."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._rounds: dict[int, _Round] = {}

    async def tell(
        self,
        instances: Iterable[str],
        send: Callable[[str, Message], None],
        message: Callable[[int], Message],
        on_end: OnEnd = lambda instance, answer: None,
    ) -> None:
        """Send them a message with a number. Returns when each has answered or died.

        `on_end` is called with the name of each as it does, before anything that is told of it later, and its answer.
        """
        number, names = next(self._numbers), list(instances)
        if not names:
            return
        self._rounds[number] = waiting = _Round(set(names), on_end)
        try:
            for name in names:
                send(name, message(number))
            await waiting.over.wait()
        finally:
            del self._rounds[number]

    def heard(self, message: Heard) -> None:
        """Take an answer in."""
        if asked := self._rounds.get(message.number):
            asked.end(message.instance, message)

    def died(self, instance: str) -> None:
        """Wait for the answers of an instance no longer: its worker has died."""
        for asked in list(self._rounds.values()):
            asked.end(instance, None)

    def all_died(self) -> None:
        """Wait for no answers any longer: all workers are replaced."""
        for asked in list(self._rounds.values()):
            for instance in list(asked.waiting):
                asked.end(instance, None)
