"""Run `unifiedserve router`: several servers behind one address."""

import math
from collections.abc import Collection

from unifiedserve.errors import ConfigError
from unifiedserve.observe.logs import log_of_server
from unifiedserve.server.listener import bind


def run(
    nodes: str,
    host: str,
    port: int,
    policy: str,
    drain_timeout: float,
    allowed_hosts: Collection[str],
    cors_origins: Collection[str],
) -> None:
    """Route until a signal ends it. Raises ConfigError for a port in use, URLs that are none, or a library missing."""
    try:
        import uvloop

        from unifiedserve.cluster.router.daemon import route
        from unifiedserve.cluster.router.members import FROM_STDIN, members_of
        from unifiedserve.cluster.router.origins import Origins
        from unifiedserve.cluster.routing import Policy
        from unifiedserve.server.access.hosts import Hosts
    except ModuleNotFoundError as error:
        raise ConfigError(f"a router needs {error.name}: pip install 'unifiedserve[cluster]'") from error
    if not math.isfinite(drain_timeout):
        raise ConfigError(f"--drain-timeout {drain_timeout:g}: must be a finite number")
    if nodes != FROM_STDIN:
        members_of(nodes)
    log_of_server("text", access_log=False)
    with bind(host, port) as listener:
        uvloop.run(
            route(
                nodes,
                Policy(policy),
                listener,
                Hosts(host, allowed_hosts),
                Origins(cors_origins),
                math.ceil(drain_timeout),
                lambda url: print(f"Serving {nodes if nodes != FROM_STDIN else 'nodes'} at {url}", flush=True),
            )
        )
