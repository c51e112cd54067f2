"""A router behind HTTP in this process."""

import contextlib
from collections.abc import AsyncIterator, Collection

from aiohttp import web

from unifiedserve.cluster.router.app import Router
from unifiedserve.cluster.router.daemon import runner_of
from unifiedserve.cluster.router.origins import Origins
from unifiedserve.server.access.hosts import Hosts


@contextlib.asynccontextmanager
async def served(router: Router, cors_origins: Collection[str] = ()) -> AsyncIterator[str]:
    """Serve a router that is running on a free port of loopback; yields its URL."""
    runner = runner_of(router, 0.1, Hosts("127.0.0.1", ["127.0.0.1", "*.example.com"]), Origins(cors_origins))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
