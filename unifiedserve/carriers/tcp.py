"""Carry pages over TCP. Each side's pools have a server; a client reads straight into pages."""

import ipaddress
import logging
import secrets
import socket
from collections.abc import Mapping, Sequence

from ipc_buffers import ArenaError, Bell, PageClient, PagePool, PageServer
from unifiedserve.carriers.address import Address, AddressError, parse
from unifiedserve.carriers.base import Copy, Done
from unifiedserve.carriers.loop_thread import LoopThread
from unifiedserve.carriers.setting import Setting
from unifiedserve.carriers.tcp_door import Door, Server, connect, listen
from unifiedserve.carriers.tcp_handshake import HandshakeError, Identity, Layout, parse_token
from unifiedserve.errors import ConfigError

_log = logging.getLogger(__name__)
_KIND, _SERVER = "tcp", "server"


class TcpCarrier:
    """Read from servers of other processes, of this machine or another, and serve them.

    Nothing is encrypted: it is for loopback and private networks. A client without the token gets nothing.
    """

    def __init__(self, setting: Setting, bell: Bell) -> None:
        host = _host(setting)
        try:
            self._token = parse_token(setting.token)
            self._layout = Layout(setting.description, {})
            self._server = PageServer(setting.patience)
            self._client = PageClient(bell, setting.patience)
            self._listener = listen(setting.host, setting.port)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the carrier {_KIND!r}: {error}") from None
        self._patience = setting.patience
        self._incarnation = secrets.randbits(64)
        self._pools: dict[str, PagePool] = {}
        self._door = Door(self._listener, setting.patience, lambda: self._identity(self._incarnation), self._welcome)
        self._thread = LoopThread()
        self._thread.begin(self._door.accept())
        port = self._listener.getsockname()[1]
        self.address = Address(_KIND, f"{host}:{port}", {_SERVER: f"{self._incarnation:x}"}).text()

    def register(self, pools: Mapping[str, PagePool]) -> None:
        """Let others read these pools, and read into them from now on."""
        own = dict(sorted(pools.items()))
        try:
            layout = Layout(
                self._layout.description, {name: (pool.page_bytes, pool.num_pages) for name, pool in own.items()}
            )
            self._client.use(own)
        except (ArenaError, ValueError) as error:
            raise ConfigError(f"the carrier {_KIND!r}: {error}") from None
        self._pools, self._layout = own, layout

    def read(self, address: str, copies: Sequence[Copy]) -> int:
        """Begin to read, and return the transfer's number; see Carrier."""
        transfer, is_first = self._client.read(address, copies)
        if is_first:
            self._lead(address)
        return transfer

    def poll(self) -> list[Done]:
        """Return the transfers that have ended since the last call."""
        for who in self._door.turned_away():
            _log.warning("the server of pages turned away %s", who)
        return [Done(*done) for done in self._client.poll()]

    def close(self, transfer: int) -> None:
        """Drop a transfer; nothing is written to its pages after this."""
        self._client.close(transfer)

    def shut(self) -> None:
        """Drop all transfers, and end the server."""
        self._thread.end()
        self._listener.close()
        self._client.shut()
        self._server.shut()

    def _identity(self, incarnation: int) -> Identity:
        return Identity(self._token, incarnation, self._layout)

    def _welcome(self, client: socket.socket, layout: Layout) -> None:
        """Serve a client that has introduced itself; raises RuntimeError if it cannot be."""
        self._server.serve(client.detach(), [(name, self._pools.get(name)) for name in layout.pools])

    def _lead(self, address: str) -> None:
        """Have what waits for a server led to it, or failed."""
        try:
            server, incarnation = _parts(address)
        except AddressError as error:
            self._client.fail(address, str(error))
        else:
            self._thread.begin(self._connect(address, server, self._identity(incarnation)))

    async def _connect(self, address: str, server: Server, own: Identity) -> None:
        try:
            connection = await connect(server, self._patience, own)
        except (HandshakeError, OSError) as error:
            self._client.fail(address, f"{server} {error}")
        else:
            self._client.connect(address, str(server), connection.detach())


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


def _parts(text: str) -> tuple[Server, int]:
    """Return where a server of an address listens, and its incarnation; raises AddressError."""
    address = parse(text, _KIND)
    host, _, port = address.where.rpartition(":")
    try:
        numeric = ipaddress.IPv6Address(host[1:-1]) if host[:1] + host[-1:] == "[]" else ipaddress.IPv4Address(host)
        number, incarnation = int(port), int(address.facts[_SERVER], 16)
    except (KeyError, ValueError):
        raise AddressError(f"{text[:80]!r} is no address of a carrier {_KIND!r}") from None
    if not (0 < number < 1 << 16 and 0 <= incarnation < 1 << 64):
        raise AddressError(f"{text[:80]!r} is no address of a carrier {_KIND!r}")
    return Server(str(numeric), number), incarnation
