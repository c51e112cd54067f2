"""Do the work of vision in threads, in the order of turns."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from unifiedserve.worker.vision.videos import RunningVideos


class TurnPool:
    """Do the next work whenever a thread is idle: lowest priority, then earliest turn.

    A turn may change while a request waits.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._waiting: list[tuple[RunningVideos, Callable[[], None]]] = []  # in the order in which they came
        self._lock = threading.Lock()

    def submit(self, running: RunningVideos, work: Callable[..., None], *given: object) -> None:
        """Do a step of a request when it is its turn. Raises RuntimeError if the pool is closed."""
        with self._lock:
            self._waiting.append((running, partial(work, *given)))
        self._pool.submit(self._do_next)

    def close(self) -> None:
        """Wait for the steps that have begun, and forget the others."""
        self._pool.shutdown(cancel_futures=True)

    def _do_next(self) -> None:
        with self._lock:
            ranks = [(running.priority, running.turn) for running, _ in self._waiting]
            _, work = self._waiting.pop(ranks.index(min(ranks)))
        work()
