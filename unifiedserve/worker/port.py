"""The connections of one worker."""

from typing import NamedTuple

from unifiedserve.config import Placement
from unifiedserve.device.base import Device
from unifiedserve.memory.shared import SharedMemory
from unifiedserve.worker.neighbours import Neighbours
from unifiedserve.worker.outbox import Outbox
from unifiedserve.worker.pulse import Pulse
from unifiedserve.worker.reporter import Reporter


class Port(NamedTuple):
    """What the stages of a worker may do to the outside."""

    outbox: Outbox
    reporter: Reporter
    neighbours: Neighbours
    pulse: Pulse

    @classmethod
    def connect(cls, placement: Placement, instance: str, memory: SharedMemory, device: Device) -> "Port":
        """Return the connections of `instance`, which computes on `device`, to all that share this memory."""
        outbox = Outbox(placement, instance, memory.inboxes, device.fence)
        neighbours = Neighbours(placement, instance, memory.status)
        return cls(outbox, Reporter(instance, outbox), neighbours, Pulse(memory.pulses, instance))
