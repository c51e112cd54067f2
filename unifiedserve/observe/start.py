"""Tell the person who waits for the daemon what it does until it is ready."""

import logging
import threading
import time
from types import TracebackType
from typing import TextIO

_STEPS = logging.getLogger("unifiedserve.start")
_PATIENCE = 10.0  # seconds after which a step that still goes on is told again


def begin_step(text: str) -> None:
    """Say what happens from now on; it is heard while a `StartReport` is open."""
    _STEPS.info(text)


class StartReport(logging.Handler):
    """Print each step of a start with its seconds, and repeat a long one. The seconds count since it was opened.

    Without a stream, the steps go to the log.
    """

    def __init__(self, stream: TextIO | None, patience: float = _PATIENCE) -> None:
        super().__init__()
        self._stream = stream
        self._patience = patience
        self._began = time.monotonic()
        self._step = ""
        self._news = threading.Event()
        self._open = False

    def __enter__(self) -> "StartReport":
        _STEPS.setLevel(logging.INFO)
        if self._stream is not None:
            self._open = True
            _STEPS.propagate = False
            _STEPS.addHandler(self)
            threading.Thread(target=self._repeat, name="start", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Print nothing any more; safe to call twice."""
        _STEPS.setLevel(logging.NOTSET)
        _STEPS.propagate = True
        _STEPS.removeHandler(self)
        self._open = False
        self._news.set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a step that begins."""
        self._step = record.getMessage()
        self._news.set()
        self._print(self._step)

    def _repeat(self) -> None:
        """Print the present step again whenever there was no news for a while."""
        while self._open:
            if self._news.wait(self._patience):
                self._news.clear()
            elif self._step:
                self._print(f"still {self._step}")

    def _print(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", file=self._stream, flush=True)
