"""The daemon: one engine behind one socket, from start to clean shutdown."""

import asyncio
import contextlib
import signal
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from unifiedserve.config import LARGE_IMAGE_WARNING, EngineConfig
from unifiedserve.engine.engine import Engine
from unifiedserve.server.app import create_app
from unifiedserve.server.connections import Connection, Connections, descriptors_for_connections
from unifiedserve.server.listener import listen

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE_SECONDS = 10  # for requests to end after a signal; what is left then is failed,
_LAST_SECONDS = 3  # and has this long to tell its client
_KEEP_ALIVE_SECONDS = 30


class Server(uvicorn.Server):
    """uvicorn, leaving signals to us: it would raise them again before the engine has stopped."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(config: EngineConfig, listener: socket.socket, on_ready: Callable[[str, str], None]) -> None:
    """Serve on a bound socket until SIGINT or SIGTERM; calls `on_ready(model_name, url)` when requests may come.

    Raises ConfigError if the daemon cannot start. The first signal lets a start, or running requests for a while,
    come to their end; a second one does not.
    """
    warnings.filterwarnings("ignore", LARGE_IMAGE_WARNING)
    engine = Engine(config)
    compared = Engine(config.compared) if config.compared else None
    app = create_app(engine, compared)
    server = Server(http_config(app, Connections(descriptors_for_connections())))
    with _stop_on_signals(server, [engine] if compared is None else [engine, compared]):
        async with app.router.lifespan_context(app):
            if not server.should_exit:
                on_ready(engine.model_name, listen(listener))
                await server.serve(sockets=[listener])


def http_config(app: ASGIApp, connections: Connections) -> uvicorn.Config:
    """Return how uvicorn is to serve an app whose lifespan is its caller's to run."""
    return uvicorn.Config(
        app,
        http=partial(Connection, connections),  # type: ignore[arg-type]  # it is called with what a class would be
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS + _LAST_SECONDS,
    )


@contextlib.contextmanager
def _stop_on_signals(server: Server, engines: Sequence[Engine]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def fail_all() -> None:
        for engine in engines:
            engine.fail_all("the server is shutting down")

    def stop() -> None:
        for engine in engines:
            engine.live.close()  # viewers have no end of their own to come to
        if not server.should_exit:
            server.should_exit = True
            loop.call_later(_GRACE_SECONDS, fail_all)
        elif server.started:
            fail_all()
        else:
            task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
