"""The device's one stream: work in program order, done when the host waits for it, and counts of what the host did."""

import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch


class Work(NamedTuple):
    name: str
    run: Callable[[], object]


class Stream:
    """Keeps work until the host waits. Threads may share it; work is done in the thread that waits."""

    def __init__(self) -> None:
        self._recorded: dict[int, list[Work]] = {}  # by the thread that records
        self._queues: defaultdict[str, deque[Work]] = defaultdict(deque)
        self._pending = self._queues[""]
        self._running = threading.RLock()
        self._marks = itertools.count()
        self.reset()

    def reset(self) -> None:
        """Begin to count anew; work stays queued."""
        self.waits: list[str] = []
        self.copies: list[str] = []
        self.uploads = 0

    @contextmanager
    def of(self, process: str) -> Iterator[None]:
        """Queue work, and wait for it, as another process would, beside which this one's work stays queued."""
        before, self._pending = self._pending, self._queues[process]
        try:
            yield
        finally:
            self._pending = before

    @property
    def pending(self) -> int:
        return len(self._pending)

    def queue(self, name: str, run: Callable[[], object]) -> None:
        self._recorded.get(threading.get_ident(), self._pending).append(Work(name, run))

    @contextmanager
    def recording(self) -> Iterator[list[Work]]:
        """Keep this thread's work in a list instead of doing it; meanwhile nothing can be waited for."""
        self.check_not_recording("recording")
        self._recorded[threading.get_ident()] = recorded = list[Work]()
        try:
            yield recorded
        finally:
            del self._recorded[threading.get_ident()]

    def run_all(self) -> None:
        """Do the work of every queue."""
        for name in list(self._queues):
            with self.of(name):
                self.run()

    def repeat(self, recorded: list[Work]) -> None:
        """Queue work that was recorded."""
        self._pending.extend(recorded)

    def check_not_recording(self, name: str) -> None:
        """Raise RuntimeError, as a GPU does, for what this thread cannot do while it records."""
        if threading.get_ident() in self._recorded:
            raise RuntimeError(f"{name}: operation not permitted when stream is capturing")

    def wait(self, name: str) -> None:
        """Do all work for an operation that needs values on the host, and count it."""
        self.check_not_recording(name)
        self.waits.append(name)
        self.run()

    def mark(self) -> Work:
        """Queue a place to which work can be done."""
        self.check_not_recording("mark")
        self._pending.append(work := Work(f"mark {next(self._marks)}", lambda: None))
        return work

    def run(self, mark: Work | None = None) -> None:
        """Do all work, or that before a mark.

        Raises RuntimeError for the first that fails; what was queued behind it is never done.
        """
        self.check_not_recording("synchronize")
        with self._running, torch.inference_mode():
            while self._pending and (mark is None or mark in self._pending):
                work = self._pending.popleft()
                try:
                    work.run()
                except Exception as error:
                    self._pending.clear()
                    raise RuntimeError(f"{work.name} failed on the device: {error}") from error


stream = Stream()
