"""What a worker does when it is told that another one hosts other stages from now on."""

import uuid
from unittest.mock import Mock

from msgspec.structs import replace

from ipc_buffers import MessageQueue
from unifiedserve.messages.wire import Message, PagesFreed, Placed, unpack
from unifiedserve.placement import Placement, Stage, read_placement
from unifiedserve.scheduling.simulation.status import Status
from unifiedserve.scheduling.turn import Neighbours
from unifiedserve.worker.outbox import Outbox
from unifiedserve.worker.port import Port

NAME, OTHER = "decode", "encode-2"  # which share core 1


class Sender:
    """The port of an instance, the inboxes of all, and what these tell each other."""

    def __init__(self, placement: Placement) -> None:
        self.inboxes = {each.name: _queue() for each in placement.instances}
        self.status = Status()
        outbox = Outbox(placement, NAME, self.inboxes, lambda: None)
        neighbours = Neighbours(placement, NAME, self.status)
        self.port = Port(NAME, "mem0", outbox, Mock(), neighbours, Mock(), Mock(), frozenset())

    def sent(self) -> dict[str, list[Message]]:
        """Return what has come to each instance since this was asked last, if anything has."""
        received = {name: inbox.receive_many(100, timeout=0) for name, inbox in self.inboxes.items()}
        return {name: list(map(unpack, messages)) for name, messages in received.items() if messages}

    def freed(self, stage: Stage) -> list[str]:
        """Tell the hosts of a stage that pages came free; return who is told."""
        self.sent()
        self.port.outbox.tell_freed(stage, "mem0")
        return list(self.sent())


def _queue() -> MessageQueue:
    """Return a queue that has no name any more."""
    queue = MessageQueue.create(f"test-placed-{uuid.uuid4().hex[:12]}", 1 << 12)
    queue.unlink()
    return queue


def placed() -> tuple[Placement, Placement]:
    """Return a placement before and after an encoder beside decode has come to prefill."""
    before = read_placement("e@0+e@1+p@0+d@1", range(2))
    return before, before.changed(replace(before.named(OTHER), stages=(Stage.PREFILL,)))


def test_messages_go_to_the_hosts_that_there_are_now() -> None:
    before, after = placed()
    sender = Sender(before)
    assert (sender.freed(Stage.ENCODE), sender.freed(Stage.PREFILL)) == (["encode-1", OTHER], ["prefill"])
    sender.port.placed(Placed(after, OTHER))
    assert (sender.freed(Stage.ENCODE), sender.freed(Stage.PREFILL)) == (["encode-1"], [OTHER, "prefill"])


def test_whoever_has_changed_looks_for_pages_that_came_free_before() -> None:
    before, after = placed()
    sender = Sender(before)
    sender.port.placed(Placed(after, OTHER))
    assert sender.sent() == {OTHER: [PagesFreed()]}


def test_a_worker_paces_itself_by_what_those_on_its_cores_host_now() -> None:
    before, after = placed()
    sender = Sender(before)
    sender.status.set_waiting(OTHER, 3, joining=True)
    assert sender.port.neighbours.around().waiting == 0, "it does not prefill yet"
    sender.port.placed(Placed(after, OTHER))
    assert (sender.port.neighbours.around().waiting, sender.port.neighbours.around().joining) == (3, True)
