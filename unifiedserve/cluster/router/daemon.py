"""Run the router as a process: from start to clean shutdown."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable

from aiohttp import web

from unifiedserve.cluster.router.app import Router, create_app
from unifiedserve.cluster.router.members import told
from unifiedserve.cluster.router.origins import Origins
from unifiedserve.cluster.routing import Policy
from unifiedserve.heap import spare_collections
from unifiedserve.observe.otel import tracer_of_environment
from unifiedserve.server.access.hosts import Hosts
from unifiedserve.server.listener import KEEP_ALIVE_SECONDS, listen

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NOWHERE = logging.Logger("aiohttp.server", logging.CRITICAL + 1)  # the app logs its failures; strangers' are theirs


async def route(
    nodes: str,
    policy: Policy,
    listener: socket.socket,
    hosts: Hosts,
    origins: Origins,
    drain_seconds: int,
    on_ready: Callable[[str], None],
) -> None:
    """Route on a bound socket until SIGINT or SIGTERM.

    It answers requests to these hosts, and lets pages of these origins use it. Answers that run then have some
    seconds to end.
    """
    router = Router(policy, told(nodes), tracer_of_environment())
    signalled, signalled_again = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        (signalled_again if signalled.is_set() else signalled).set()

    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop)
    async with router.running():
        runner = runner_of(router, drain_seconds, hosts, origins)
        await runner.setup()
        url = listen(listener)
        await web.SockSite(runner, listener).start()
        spare_collections()
        on_ready(url)
        await signalled.wait()
        ending = [asyncio.create_task(runner.cleanup()), asyncio.create_task(signalled_again.wait())]
        await asyncio.wait(ending, timeout=drain_seconds, return_when=asyncio.FIRST_COMPLETED)


def runner_of(router: Router, drain_seconds: float, hosts: Hosts, origins: Origins) -> web.AppRunner:
    """Return what serves a router; answers that run at its clean-up have some seconds to end."""
    return web.AppRunner(
        create_app(router, hosts, origins),
        access_log=None,
        handler_cancellation=True,  # a node need not go on with what nobody reads
        auto_decompress=False,
        logger=_NOWHERE,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        shutdown_timeout=drain_seconds,
    )
