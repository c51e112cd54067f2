"""Choose which part of a run is looked at."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from unifiedserve.bench.records import Record
from unifiedserve.errors import ConfigError


class Window(NamedTuple):
    """Select seconds of a run, [start, stop]."""

    start: float
    stop: float

    @property
    def length(self) -> float:
        return self.stop - self.start


def whole(records: Sequence[Record]) -> Window | None:
    """Return the time from the first request's due time to the last answer's end. None without records."""
    if not records:
        return None
    stop = max(max(record.ended, record.due, *record.token_times[-1:]) for record in records)
    return Window(min(record.due for record in records), stop)


def steady(records: Sequence[Record], ramp_up: float, ramp_down: float) -> Window | None:
    """Return the time in which requests were due, less so many seconds at its ends; None without records.

    At first and at last a server is emptier than the rate makes it. Raises ConfigError if the ramps leave nothing.
    """
    if not records:
        return None
    dues = [record.due for record in records]
    window = Window(min(dues) + ramp_up, max(dues) - ramp_down)
    if window.length <= 0:
        length = max(dues) - min(dues)
        raise ConfigError(
            f"ramps of {ramp_up:g} and {ramp_down:g} s leave nothing of {length:.1f} s of arrivals: choose shorter ones"
        )
    return window


def due_in(records: Iterable[Record], window: Window) -> list[Record]:
    """Return the records of what was due in the window."""
    return [record for record in records if window.start <= record.due <= window.stop]
