"""Check the names under which a server is asked. Else pages elsewhere reach it by names that they point at it."""

import ipaddress
import socket
from collections.abc import Collection

from unifiedserve.errors import ErrorKind, RequestError

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_ANY = "*"


class Hosts:
    """List the hosts that requests may be for. A name `*.example.com` stands for all names that end so, `*` for any."""

    def __init__(self, bound: str, allowed: Collection[str] = ()) -> None:
        """Allow these; if none are given, on loopback its own names only, and elsewhere any."""
        own = [*_LOOPBACK_NAMES, bound] if is_loopback(bound) else [_ANY]
        self._allowed = [host.lower().strip("[]") for host in allowed or own]

    def check(self, header: str | None) -> None:
        """Raise RequestError 403 for a Host header with another name."""
        host = _host(header or "")
        if not any(_matches(host, allowed) for allowed in self._allowed):
            raise RequestError(
                f"This server is not known as {host[:64] or 'no name'} (see --allowed-hosts).",
                ErrorKind.FORBIDDEN,
                code="forbidden_host",
            )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches what listens on an address or name."""
    try:
        return ipaddress.ip_address(socket.gethostbyname(host) if ":" not in host else host).is_loopback
    except (OSError, ValueError):
        return False


def _host(header: str) -> str:
    """Return the name of a Host header without its port."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _matches(host: str, allowed: str) -> bool:
    return allowed == _ANY or host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:]))
