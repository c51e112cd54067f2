"""Open connections of the carrier `tcp`, until both sides have introduced themselves."""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from unifiedserve.carriers.tcp_handshake import HandshakeError, Identity, Layout, meet_client, meet_server

_MOST_STRANGERS = 64
_MOST_TOLD = 16
_WAITING = 64  # have connected and are not accepted yet
_LOCAL_BUFFER = 208 << 10  # bytes
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
#: a machine that is gone is noticed within a minute, also where nothing is asked of it
_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Server(NamedTuple):
    """Tell where a server listens."""

    host: str  # numeric
    port: int

    def __str__(self) -> str:
        return f"{self.host} port {self.port}"


class Door:
    """Let clients in that have the token and mean the same pages.

    Peers that have not said so yet are few: they make room for each other, the first ones first, and each has
    `patience` seconds.
    """

    def __init__(
        self,
        listener: socket.socket,
        patience: float,
        own: Callable[[], Identity],
        welcome: Callable[[socket.socket, Layout], None],
    ) -> None:
        """Have clients taken over by `welcome`, which raises RuntimeError for one that cannot be served."""
        self._listener = listener
        self._patience = patience
        self._own = own
        self._welcome = welcome
        self._strangers: dict[asyncio.Task[None], str] = {}
        self._turned_away: deque[str] = deque(maxlen=_MOST_TOLD)

    def turned_away(self) -> list[str]:
        """Return which clients were turned away since the last call, and why; only the latest ones."""
        return [self._turned_away.popleft() for _ in range(len(self._turned_away))]

    async def accept(self) -> None:
        """Let clients in until this is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(self._listener)
            except OSError as error:  # it has gone, or the system has no room for one more
                await asyncio.sleep(self._patience / 4 if error.errno in _FULL else 0)
                continue
            self._make_room()
            name = str(Server(*address[:2]))
            stranger = loop.create_task(self._let_in(client, name))
            self._strangers[stranger] = name
            stranger.add_done_callback(lambda task: self._strangers.pop(task, None))
            await asyncio.sleep(0)  # however many come, others have their turn

    def _make_room(self) -> None:
        if len(self._strangers) == _MOST_STRANGERS:
            first = next(iter(self._strangers))
            self._turned_away.append(f"{self._strangers.pop(first)} did not say who it is while others came")
            first.cancel()

    async def _let_in(self, client: socket.socket, name: str) -> None:
        with client:
            try:
                async with asyncio.timeout(self._patience):
                    layout = await meet_client(client, self._own())
                _set_options(client)
                self._welcome(client, layout)
            except TimeoutError:
                self._turned_away.append(f"{name} took too long")
            except (HandshakeError, RuntimeError) as error:
                self._turned_away.append(f"{name} {error}")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address of this machine; port 0 is any free one.

    Raises OSError with one line for an address that is none, or a port that is in use.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise OSError(f"{host!r} is no address: {error}") from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(_WAITING)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            why = "is in use: choose another one, or 0 for any that is free"
        else:
            why = f"cannot be listened at: {error.strerror}"
        raise OSError(f"port {port} of {host} {why}") from None
    return listener


async def connect(server: Server, patience: float, own: Identity) -> socket.socket:
    """Return a connection to a server that was introduced, after at most `patience` seconds.

    Raises HandshakeError if nothing can be read from it, OSError if the system has no room for a connection.
    """
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        async with asyncio.timeout(patience):
            await _reach(connection, server)
            await meet_server(connection, own)
        _set_options(connection)
    except TimeoutError:
        connection.close()
        raise HandshakeError(f"sent nothing that was waited for in {patience:f} seconds") from None
    except BaseException:
        connection.close()
        raise
    return connection


async def _reach(connection: socket.socket, server: Server) -> None:
    try:
        await asyncio.get_running_loop().sock_connect(connection, server)
    except OSError as error:
        raise HandshakeError(f"cannot be connected to: {os.strerror(error.errno or 0)}") from None


def _set_options(connection: socket.socket) -> None:
    """Have small messages sent at once, and keep little on the way to local peers.

    The little then stays in the processor's caches. To other machines the system keeps as much as the network's delay
    asks for.
    """
    with suppress(OSError):  # one that has broken says so when it is used
        for option in _OPTIONS:
            connection.setsockopt(*option)
        if connection.getsockname()[0] == connection.getpeername()[0]:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LOCAL_BUFFER)
