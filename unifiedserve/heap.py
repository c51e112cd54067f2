"""Return freed memory to the system at rest, and keep garbage collections out of imports.

The C library keeps freed memory otherwise. Imports make hundreds of thousands of objects, and next to no garbage.
"""

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOK_SECONDS = 5.0
_AT_REST = 0.02  # of a core
_WORTH_IT = 0.5  # seconds of work, after which there may be something to give back
_MUCH = 48 << 20  # bytes more than at the least, which are not left until it rests
_PATIENCE = 6  # looks until then
_M_MMAP_THRESHOLD = -3  # malloc.h
_LARGE = 1 << 20  # bytes of a block that has a mapping of its own


class _Rest:
    """Detect by processor time whether a process has come to rest after some work."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before = self._given_back = clock()
        self._looks = 0  # since then

    def begins(self, seconds: float, *, has_much: bool = False) -> bool:
        """Tell whether it rests since the last look, `seconds` ago. After work it says so once.

        A process that has much to give back is held to rest after a while of work, too.
        """
        now = self._clock()
        rested, self._before = now - self._before < _AT_REST * seconds, now
        self._looks += 1
        if now - self._given_back < _WORTH_IT or not (rested or (has_much and self._looks >= _PATIENCE)):
            return False
        self._given_back, self._looks = now, 0
        return True


def map_large_blocks() -> None:
    """Have the C library (glibc) give each large block back when it is freed.

    It keeps more and more of them otherwise: each one that is freed raises the size from which blocks are mapped.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_M_MMAP_THRESHOLD, _LARGE)


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage meanwhile: it takes a seventh of the time of imports, and finds nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def spare_collections() -> None:
    """Leave out what there is by now whenever garbage is collected: to look at it all takes a tenth of a second.

    There is next to no garbage when a program has just started.
    """
    gc.freeze()


def give_back() -> None:
    """Collect garbage, and give freed memory back, where the C library can (glibc)."""
    gc.collect()  # what errors hold, by their frames, is found by this only
    if trim := _malloc_trim():
        trim(0)


def give_back_at_rest(*, also_at_work: bool = False) -> None:
    """Start a thread that gives memory back from now on, where the C library can (glibc).

    `also_at_work`: a process that has much to give back need not rest, if some milliseconds are no matter to it.
    """
    if _malloc_trim():
        threading.Thread(target=_watch, args=(also_at_work,), name="heap", daemon=True).start()


def _malloc_trim() -> Callable[[int], int] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def _watch(also_at_work: bool) -> None:
    rest, least = _Rest(time.process_time), _resident()
    while True:
        time.sleep(_LOOK_SECONDS)
        if rest.begins(_LOOK_SECONDS, has_much=also_at_work and _resident() > least + _MUCH):
            give_back()
            least = min(least, _resident())  # what was still in use is given back another time


def _resident() -> int:
    """Return the bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
