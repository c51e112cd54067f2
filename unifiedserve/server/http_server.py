"""uvicorn as daemons and routers run it."""

import contextlib
from collections.abc import Iterator

import uvicorn

KEEP_ALIVE_SECONDS = 30


class Server(uvicorn.Server):
    """uvicorn, leaving signals to us: it would raise them again before what it serves has stopped."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
