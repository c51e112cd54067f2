"""Hold the connections of one worker."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from unifiedserve.device import Device
from unifiedserve.memory.pulses import Pulses
from unifiedserve.memory.shared import SharedMemory
from unifiedserve.memory.status import Status
from unifiedserve.messages.ticket import Place
from unifiedserve.messages.wire import PagesFreed, Placed, Reborn
from unifiedserve.placement import ENGINE, Instance, Placement, Stage
from unifiedserve.scheduling.turn import Neighbours, Tells
from unifiedserve.worker.outbox import Outbox
from unifiedserve.worker.reporter import Reporter


class Pulse:
    """Show signs of life of one worker, for the engine to watch."""

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


class Port(NamedTuple):
    """Define what the stages of a worker may do to the outside."""

    instance: str
    memory: str  # that its pages are in
    outbox: Outbox
    reporter: Reporter
    neighbours: Neighbours
    status: Status
    pulse: Pulse
    elsewhere: frozenset[str]  # names of the instances that have another memory; the engine's stands for other nodes

    @classmethod
    def connect(cls, placement: Placement, instance: Instance, memory: SharedMemory, device: Device) -> "Port":
        """Return the connections of `instance`, which computes on `device`, to all that share this memory."""
        name, status = instance.name, memory.status
        outbox = Outbox(placement, name, memory.inboxes, device.fence)
        neighbours, pulse = Neighbours(placement, name, status), Pulse(memory.pulses, name)
        others = {each.name for each in placement.instances if each.memory != instance.memory}
        nodes = set() if placement.is_whole else {ENGINE}
        elsewhere = frozenset(others | nodes)
        return cls(name, instance.memory, outbox, Reporter(name, outbox), neighbours, status, pulse, elsewhere)

    def tell(self, tells: Tells) -> None:
        """Tell the other instances what this one is about to do; wake those that have waited behind one of its own."""
        for stage in self.neighbours.tell(tells):
            self.outbox.tell_freed(stage, self.memory)

    def tell_first(self, first: Mapping[str, Place | None]) -> None:
        """Tell the other vision stages which request waits first for pages of each memory; wake them as `tell` does."""
        for memory in self.neighbours.tell_first(first):
            self.outbox.tell_freed(Stage.VISION, memory)

    def placed(self, placed: Placed) -> None:
        """Go by another placement, and have the instance that is new there look for pages.

        Those that came free before were told of to its predecessor.
        """
        self.outbox.placed(placed.placement)
        self.neighbours.placed(placed.placement)
        self.outbox.send(placed.changed, PagesFreed())

    def reborn(self, reborn: Reborn) -> None:
        """Note that another worker is an instance from now on. It looks for pages, as in `placed`."""
        self.outbox.send(reborn.instance, PagesFreed())
        self.outbox.heard(reborn.number)

    def used(self, stage: Stage, pages: int, memory: str = "") -> None:
        """Tell how many pages of the stage's buffer are in use, in some memory."""
        self.status.used(self.instance, stage, pages, memory or self.memory)
