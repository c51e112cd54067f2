"""Simulated systems whose turns are recorded."""

from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

from systems import simulated

from unifiedserve.config import Order
from unifiedserve.recording.log import Log
from unifiedserve.recording.records import Made, MadeVision, Record, decode
from unifiedserve.recording.turn import RecordedTurn, RecordedVisionTurn
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import language, vision
from unifiedserve.scheduling.step_costs import StepCosts


class KeptLog(Log):
    """Keeps records instead of writing them."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def add(self, record: bytes) -> None:
        self.data.append(record)

    def flush_now_and_then(self, now: float) -> None: ...

    def close(self) -> None: ...


def recorded(
    *system: Any, log_of: Callable[[], Log] = KeptLog, vision_log_of: Callable[[], Log] = KeptLog
) -> list[Log]:
    """Let all happen in a system; return the records of its turns, but those of vision."""
    logs: list[Log] = []

    def turn(hosted: Iterable[Any], budget: Budget, *, rests: bool, steps: StepCosts) -> RecordedTurn:
        logs.append(log_of())
        return RecordedTurn(Made(list(hosted), budget, rests, 1.0, steps), logs[-1])

    def vision_turn(order: Order) -> RecordedVisionTurn:
        return RecordedVisionTurn(MadeVision(order), vision_log_of())

    with patch.object(language, "Turn", turn), patch.object(vision, "VisionTurn", vision_turn):
        simulated(*system)
    return logs


def records_of(*system: Any) -> list[list[Record]]:
    """Return what the turns of a system recorded, but those of vision."""
    return [list(map(decode, log.data)) for log in recorded(*system) if isinstance(log, KeptLog)]


def one_log_of(*system: Any) -> list[Record]:
    """Return what all turns of a system in one process recorded."""
    log = KeptLog()
    recorded(*system, log_of=lambda: log, vision_log_of=lambda: log)
    return list(map(decode, log.data))
