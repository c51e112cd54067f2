"""Connect to a server."""

import os
import re

import httpx

from unifiedserve.config import API_KEY, API_KEYS
from unifiedserve.errors import ConfigError

ASIDE = 30.0  # seconds without any data in which a server may answer what is asked beside a run
_CONNECT = 10.0  # seconds
_LAST_PORT = 65535
_USER = re.compile(r"(https?://)[^/@\s]*@")


def key_headers() -> dict[str, str]:
    """Return the headers that show an API key, if one is set.

    It is that of UNIFIEDSERVE_API_KEY, or the first of UNIFIEDSERVE_API_KEYS. Raises ConfigError if it cannot be shown.
    """
    first, *_ = os.environ.get(API_KEYS, "").split(",")
    words = os.environ.get(API_KEY, first).split()
    if words and not words[-1].isascii():
        raise ConfigError(f"{API_KEY}: an API key has characters of ASCII only")
    return {"Authorization": f"Bearer {words[-1]}"} if words else {}


def server_at(url: str) -> str:
    """Return the URL of the server that clients reach at `url`. `url` may end with /v1.

    Raises ConfigError if `url` is none.
    """
    base = url.rstrip("/").removesuffix("/v1").rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise ConfigError(f"--url: {url!r} must begin with http:// or https://")
    try:
        port = httpx.URL(base).port or 0
    except httpx.InvalidURL as error:
        raise ConfigError(f"--url: {url!r}: {error}") from error
    if not 0 <= port <= _LAST_PORT:
        raise ConfigError(f"--url: {url!r}: the last port is {_LAST_PORT}")
    return base


def without_password(text: str) -> str:
    """Return a text in which URLs have no user and no password: records of runs are shown to others."""
    return _USER.sub(r"\1", text)


def connect(url: str, silence: float | None) -> httpx.AsyncClient:
    """Return a client of the server at `url`. It has a connection for every request that is under way.

    A server that says nothing for `silence` seconds has failed. No proxy is asked. Raises ConfigError if `url` is none.
    """
    return httpx.AsyncClient(
        headers=key_headers(),
        base_url=server_at(url),
        timeout=httpx.Timeout(silence, connect=_CONNECT),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        trust_env=False,
    )
