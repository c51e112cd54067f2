"""Take the daemon's socket before anything slow begins."""

import errno
import socket

from unifiedserve.errors import ConfigError

#: how long a connection is kept on which nobody asks anything
KEEP_ALIVE_SECONDS = 30


def bind(host: str, port: int) -> socket.socket:
    """Return a socket with the port reserved, not listening yet; raises ConfigError that says why not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, error) from error
    return listener


def listen(listener: socket.socket, scheme: str = "http") -> str:
    """Accept connections from now on; returns the URL.

    Raises ConfigError: another process may have bound the same port at the same time, but only one can listen.
    """
    host, port, *_ = listener.getsockname()
    try:
        listener.listen()
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"port {port} of {host} is in use: stop what listens there, or choose another --port")
    return ConfigError(f"cannot listen on {host}, port {port}: {error.strerror}")
