"""Memory that a process has freed goes back to the system when it comes to rest: the C library keeps it otherwise."""

import ctypes
import threading
import time
from collections.abc import Callable

_LOOK_SECONDS = 5.0
_AT_REST = 0.02  # of a core
_WORTH_IT = 0.5  # seconds of work, after which there may be something to give back


class _Rest:
    """Tells by the processor time that a process has taken whether it has come to rest after some work."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before = self._given_back = clock()

    def begins(self, seconds: float) -> bool:
        """Tell whether it rests since the last look, `seconds` ago, and has not been told so since it worked."""
        now = self._clock()
        rested, self._before = now - self._before < _AT_REST * seconds, now
        if not rested or now - self._given_back < _WORTH_IT:
            return False
        self._given_back = now
        return True


def give_back_at_rest() -> None:
    """Start a thread that looks after this from now on, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        threading.Thread(target=_watch, args=(trim,), name="heap", daemon=True).start()


def _watch(trim: Callable[[int], int]) -> None:
    rest = _Rest(time.process_time)
    while True:
        time.sleep(_LOOK_SECONDS)
        if rest.begins(_LOOK_SECONDS):
            trim(0)
