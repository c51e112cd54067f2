"""Find Ray: the address that this machine remembers, and whether anybody listens there."""

import os
import socket
from pathlib import Path

from unifiedserve.errors import ConfigError

_SECONDS = 5.0


def address_file() -> Path:
    """Return the file in which `ray start` leaves the address of the Ray on this machine."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    return Path(folder, "ray", "ray_current_cluster")


def local_address() -> str:
    """Return the address of the Ray on this machine; "" if there is none, or it has ended."""
    try:
        address = address_file().read_text().strip()
        reach(address)
    except (OSError, ConfigError):
        return ""
    return address


def reach(address: str) -> None:
    """Raise ConfigError unless somebody listens at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--address {address}: expected HOST:PORT")
    try:
        socket.create_connection((host, int(port)), _SECONDS).close()
    except OSError as error:
        raise ConfigError(f"nothing answers at {address} within {_SECONDS:g} s: {error.strerror or error}") from error
