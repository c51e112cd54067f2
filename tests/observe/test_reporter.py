"""When a worker tells the engine what its steps produced."""

from typing import cast

from unifiedserve.messages.pages import Pages
from unifiedserve.messages.wire import Message, Report, WatchedUnits
from unifiedserve.placement import Stage
from unifiedserve.worker.outbox import Outbox
from unifiedserve.worker.reporter import Reporter


class Engine:
    """Keeps what a worker sends to it."""

    def __init__(self) -> None:
        self.got: list[Message] = []

    def to_engine(self, message: Message) -> None:
        self.got.append(message)


def test_watched_frames_are_told_of_at_once_and_all_else_once_a_step() -> None:
    """Sent with the step's report, they could come after the answer that others made of them meanwhile."""
    engine = Engine()
    reporter = Reporter("vision", cast(Outbox, engine))
    units = WatchedUnits(1, [0], [Pages((3,), (5,))])
    reporter.span(Stage.VISION, "decode", 0.0, [1])
    assert not engine.got
    reporter.decoded(units)
    (first,) = cast(list[Report], engine.got)
    assert (first.decoded, [span.name for span in first.spans]) == ([units], ["decode"])
    reporter.flush({Stage.VISION: (0, 1)})
    reporter.flush({Stage.VISION: (0, 1)})
    (_, second) = cast(list[Report], engine.got)
    assert (second.decoded, second.spans, second.counts) == ([], [], {Stage.VISION: (0, 1)})
