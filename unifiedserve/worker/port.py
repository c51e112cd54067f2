"""The connections of one worker."""

from typing import NamedTuple

from unifiedserve.config import Instance, Placement
from unifiedserve.device.base import Device
from unifiedserve.memory.shared import SharedMemory
from unifiedserve.memory.status import Status
from unifiedserve.scheduling.turn import Neighbours
from unifiedserve.worker.outbox import Outbox
from unifiedserve.worker.pulse import Pulse
from unifiedserve.worker.reporter import Reporter


class Port(NamedTuple):
    """What the stages of a worker may do to the outside."""

    outbox: Outbox
    reporter: Reporter
    neighbours: Neighbours
    status: Status
    pulse: Pulse

    @classmethod
    def connect(cls, placement: Placement, instance: Instance, memory: SharedMemory, device: Device) -> "Port":
        """Return the connections of `instance`, which computes on `device`, to all that share this memory."""
        name, status = instance.name, memory.status
        outbox = Outbox(placement, name, memory.inboxes, device.fence)
        neighbours = Neighbours(placement.beside(instance), status)
        return cls(outbox, Reporter(name, outbox), neighbours, status, Pulse(memory.pulses, name))
