"""Run the daemon: one engine behind one socket, from start to clean shutdown."""

import asyncio
import contextlib
import logging
import math
import signal
import socket
import ssl
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from unifiedserve.config import LARGE_IMAGE_WARNING, EngineConfig
from unifiedserve.engine.engine import Engine
from unifiedserve.errors import SHUTTING_DOWN, ConfigError
from unifiedserve.heap import give_back_at_rest, map_large_blocks, spare_collections
from unifiedserve.server.access.hosts import is_loopback
from unifiedserve.server.access.keys import Keys
from unifiedserve.server.app import create_app
from unifiedserve.server.connections import Connection, Connections, descriptors_for_connections
from unifiedserve.server.listener import KEEP_ALIVE_SECONDS, listen

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LAST_SECONDS = 3  # after --drain-timeout: for requests that were failed then to tell their clients


class Server(uvicorn.Server):
    """Run uvicorn without its signal handling. It would raise signals again before the engine has stopped."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(config: EngineConfig, listener: socket.socket, on_ready: Callable[[str, str], None]) -> str:
    """Serve on a bound socket until SIGINT or SIGTERM; calls `on_ready(model_name, url)` when requests may come.

    Returns why the engine was lost, "" if a signal ended it. Raises ConfigError if the daemon cannot start. The first
    signal lets a start, or running requests for a while, come to their end; a second one does not.
    """
    warnings.filterwarnings("ignore", LARGE_IMAGE_WARNING)
    engine = Engine(config)
    compared = Engine(config.compared) if config.compared else None
    keys = Keys(config.server.api_key_file)
    check_certificate(config)
    if not keys and not is_loopback(config.server.host):
        _log.warning("anybody who reaches %s may use this server: set keys (--api-key-file)", config.server.host)
    app = create_app(engine, compared, keys)
    server = Server(http_config(app, Connections(descriptors_for_connections()), config))
    engines = [engine] if compared is None else [engine, compared]
    map_large_blocks()
    give_back_at_rest(also_at_work=True)
    with _stop_on_signals(server, engines, config.server.drain_timeout), _reload_on_signal(keys):
        async with app.router.lifespan_context(app):
            if not server.should_exit:
                spare_collections()
                on_ready(engine.model_name, listen(listener, "https" if config.server.ssl_certfile else "http"))
                return await _serve_until_lost(engine, server, listener)
    return ""


async def _serve_until_lost(engine: Engine, server: Server, listener: socket.socket) -> str:
    """Serve until a signal ends the server, or the engine is lost; return why it was."""
    lost = asyncio.create_task(_stop_when_lost(engine, server))
    await server.serve(sockets=[listener])
    if lost.done():
        return lost.result()
    lost.cancel()
    return ""


async def _stop_when_lost(engine: Engine, server: Server) -> str:
    """Stop a server whose engine serves nothing any more; return why, "" if it is stopping already."""
    reason = await engine.wait_ended()
    if server.should_exit:
        return ""
    engine.live.close()
    server.should_exit = True
    return reason


def http_config(app: ASGIApp, connections: Connections, config: EngineConfig) -> uvicorn.Config:
    """Return how uvicorn is to serve an app whose lifespan is its caller's to run."""
    return uvicorn.Config(
        app,
        http=partial(Connection, connections),  # type: ignore[arg-type]  # it is called with what a class would be
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(config.server.drain_timeout) + _LAST_SECONDS,
        ssl_certfile=config.server.ssl_certfile or None,
        ssl_keyfile=config.server.ssl_keyfile or None,
    )


def check_certificate(config: EngineConfig) -> None:
    """Raise ConfigError unless HTTPS is possible as configured, or not asked for."""
    if not config.server.ssl_certfile and not config.server.ssl_keyfile:
        return
    if not config.server.ssl_certfile or not config.server.ssl_keyfile:
        raise ConfigError("--ssl-certfile and --ssl-keyfile go together")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            config.server.ssl_certfile, config.server.ssl_keyfile
        )
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(
            f"--ssl-certfile {config.server.ssl_certfile}, --ssl-keyfile {config.server.ssl_keyfile}: {error}"
        ) from error


@contextlib.contextmanager
def _reload_on_signal(keys: Keys) -> Iterator[None]:
    """Read the keys, if any, again at SIGHUP; they stay as they are if something is wrong with the new ones."""
    if not keys:
        yield
        return

    def reload() -> None:
        try:
            keys.reload()
        except ConfigError as error:
            _log.error("the keys stay as they were: %s", error)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


@contextlib.contextmanager
def _stop_on_signals(server: Server, engines: Sequence[Engine], drain_seconds: float) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def fail_all() -> None:
        for engine in engines:
            engine.fail_all(SHUTTING_DOWN)

    def stop() -> None:
        for engine in engines:
            engine.live.close()  # viewers have no end of their own to come to
        if not server.should_exit:
            server.should_exit = True
            loop.call_later(drain_seconds, fail_all)
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
