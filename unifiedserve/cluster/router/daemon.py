"""The router as a process: from start to clean shutdown."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from unifiedserve.cluster.router.app import Router, create_app
from unifiedserve.cluster.router.members import told
from unifiedserve.cluster.routing import Policy
from unifiedserve.server.listener import listen

_KEEP_ALIVE_SECONDS = 30
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def route(
    nodes: str, policy: Policy, listener: socket.socket, drain_seconds: int, on_ready: Callable[[str], None]
) -> None:
    """Route on a bound socket until SIGINT or SIGTERM; answers that run then have some seconds to end."""
    app = create_app(Router(policy, told(nodes)))
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, _stop, server)
    async with app.router.lifespan_context(app):
        on_ready(listen(listener))
        await server.serve(sockets=[listener])


def _stop(server: uvicorn.Server) -> None:
    """Drain; at the second signal end at once."""
    server.force_exit = server.should_exit
    server.should_exit = True
