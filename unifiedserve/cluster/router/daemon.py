"""The router as a process: from start to clean shutdown."""

import asyncio
import signal
import socket
from collections.abc import Callable

import uvicorn

from unifiedserve.cluster.router.app import Router, create_app
from unifiedserve.cluster.router.members import told
from unifiedserve.cluster.routing import Policy
from unifiedserve.server.http_server import KEEP_ALIVE_SECONDS, Server
from unifiedserve.server.listener import listen

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
    )
    server = Server(config)
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
