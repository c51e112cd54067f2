"""Connections to a server."""

import httpx

from unifiedserve.errors import ConfigError

_CONNECT = 10.0  # seconds


def connect(url: str, silence: float) -> httpx.AsyncClient:
    """Return a client of the server at `url`, with a connection for every request that is under way.

    A server that says nothing for `silence` seconds has failed. Raises ConfigError if `url` is none.
    """
    base = url.rstrip("/").removesuffix("/v1")
    if not base.startswith(("http://", "https://")):
        raise ConfigError(f"--url: {url!r} must begin with http:// or https://")
    return httpx.AsyncClient(
        base_url=base,
        timeout=httpx.Timeout(silence, connect=_CONNECT),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        trust_env=False,
    )
