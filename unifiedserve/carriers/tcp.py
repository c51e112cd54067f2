"""Pages over TCP: a server beside the pools of each side, and a client that reads straight into pages."""

import ipaddress
import logging
from collections.abc import Callable, Mapping, Sequence

from ipc_buffers import ArenaError, NetError, PageClient, PagePool, PageServer
from unifiedserve.carriers.address import Address, AddressError, parse
from unifiedserve.carriers.base import Copy, Done
from unifiedserve.carriers.setting import Setting
from unifiedserve.carriers.waker import Failures, Waker
from unifiedserve.errors import ConfigError

_log = logging.getLogger(__name__)
_KIND, _SERVER = "tcp", "server"


class TcpCarrier:
    """Reads from servers of other processes, of this machine or another, and serves them.

    Nothing is encrypted: it is for loopback and private networks. Who does not have the token gets nothing.
    """

    def __init__(self, setting: Setting, wake: Callable[[], None]) -> None:
        host = _host(setting)
        try:
            self._server = PageServer(
                setting.host, setting.port, setting.token, setting.description, patience=setting.patience
            )
            self._client = PageClient(setting.token, setting.description, patience=setting.patience)
        except (NetError, ValueError) as error:
            raise ConfigError(f"the carrier {_KIND!r}: {error}") from None
        facts = {_SERVER: f"{self._server.incarnation:x}"}
        self.address = Address(_KIND, f"{host}:{self._server.port}", facts).text()
        self._failures = Failures(wake)
        self._waker = Waker(self._client.wait, wake)

    def register(self, pools: Mapping[str, PagePool]) -> None:
        """Let others read these pools, and read into them from now on."""
        try:
            self._client.use(pools)
            self._server.serve(pools)
        except (ArenaError, ValueError) as error:
            raise ConfigError(f"the carrier {_KIND!r}: {error}") from None

    def read(self, address: str, copies: Sequence[Copy]) -> int:
        """Begin to read, and return the transfer's number; see Carrier."""
        try:
            host, port, incarnation = _parts(address)
        except AddressError as error:
            return self._failures.add(str(error))
        return self._client.read(host, port, incarnation, copies)

    def poll(self) -> list[Done]:
        """Return the transfers that have ended since the last call."""
        for who in self._server.turned_away():
            _log.warning("the server of pages turned away %s", who)
        return self._failures.take() + [Done(*done) for done in self._client.poll()]

    def close(self, transfer: int) -> None:
        """Drop a transfer; nothing is written to its pages after this."""
        if transfer < 0:
            self._failures.forget(transfer)
        else:
            self._client.close(transfer)

    def shut(self) -> None:
        """Drop all transfers, and end the server."""
        self._client.shut()
        self._server.shut()
        self._waker.join()


def _host(setting: Setting) -> str:
    """Return by which host others find a server, as it is written in addresses."""
    host = setting.advertised or setting.host
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ConfigError(f"the carrier {_KIND!r}: {host!r} is no numeric address by which others find it") from None
    if address.is_unspecified:
        raise ConfigError(f"the carrier {_KIND!r}: {host!r} is any address; say by which one others find this machine")
    return f"[{address}]" if address.version == 6 else str(address)


def _parts(text: str) -> tuple[str, int, int]:
    """Return host, port and incarnation of an address; raises AddressError."""
    address = parse(text, _KIND)
    host, _, port = address.where.rpartition(":")
    try:
        numeric = ipaddress.IPv6Address(host[1:-1]) if host[:1] + host[-1:] == "[]" else ipaddress.IPv4Address(host)
        number, incarnation = int(port), int(address.facts[_SERVER], 16)
    except (KeyError, ValueError):
        raise AddressError(f"{text[:80]!r} is no address of a carrier {_KIND!r}") from None
    if not (0 < number < 1 << 16 and 0 <= incarnation < 1 << 64):
        raise AddressError(f"{text[:80]!r} is no address of a carrier {_KIND!r}")
    return str(numeric), number, incarnation
