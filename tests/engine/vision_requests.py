"""What tests of the vision stage alone have decoded."""

from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import MediaSource, VisionRequest
from unifiedserve.worker.vision.stage import VisionStage


def let_in(stage: VisionStage, ticket: Ticket, source: MediaSource, turn: float = 0.0) -> None:
    """Begin to decode a medium whose pages are free, at its turn (monotonic seconds)."""
    stage.accept(VisionRequest(ticket=ticket, media=[source]))
    assert stage.take_pages(ticket.uid) == "taken"
    stage.start(ticket.uid, turn)
