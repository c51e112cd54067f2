"""Bound HTTP connections: so many at once, none silent for long, and none whose client reads no answers."""

import asyncio
import resource
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from unifiedserve.server.parting import PartingTransport, Rest
from unifiedserve.server.turns import Turns

_HEAD_SECONDS = 15.0  # for a request's head to come, from the connection or the head's first byte on
_UNREAD_SECONDS = 60.0  # in which a client must read something of its answer
_BEGIN_A_TURN = 4  # requests in a turn of the event loop; each keeps the others from it for about a millisecond
_MOST = 4096
_OTHER_DESCRIPTORS = 256  # for uploads, media, workers and their queues
_ENOUGH_DESCRIPTORS = 1 << 16


class Connections:
    """Hold all connections. When they are too many, the one that has waited for a request for longest is closed."""

    def __init__(self, most: int) -> None:
        self.turns = Turns(_BEGIN_A_TURN)
        self._most = most
        self._all: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}  # in the order since when

    def add(self, connection: "Connection") -> None:
        """Count one that waits for its first request."""
        self._all.add(connection)
        self.waits(connection)
        if len(self._all) > self._most:
            next(iter(self._waiting)).drop()

    def waits(self, connection: "Connection") -> None:
        """Note that a connection waits for a request."""
        if connection in self._all:
            self._waiting[connection] = None

    def serves(self, connection: "Connection") -> None:
        """Note that a connection has one."""
        self._waiting.pop(connection, None)

    def remove(self, connection: "Connection") -> None:
        """Forget a connection."""
        self._all.discard(connection)
        self._waiting.pop(connection, None)


class Connection(H11Protocol):
    """Hold a connection that ends when its client stalls."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.app = connections.turns.giving(self.app)
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._socket: asyncio.Transport | None = None
        self._rest: Rest | None = None
        self._parting = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        super().connection_made(cast(asyncio.Transport, PartingTransport(transport, self._part)))
        self._connections.add(self)
        self._close_after(_HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        self._stop_timer()
        self._stop_unread()
        self._stop_rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._rest is not None:
            self._rest.count(len(data))
        if self._parting:
            return
        super().data_received(data)
        if self._serving or not self._sending_still:
            self._stop_rest()
        if self._serving:
            self._connections.serves(self)
            self._stop_timer()
        elif self._timer is None:
            self._close_after(_HEAD_SECONDS)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._serving:
            self._connections.waits(self)
            if self._sending_still:
                self._begin_rest()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(_UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_unread()
        super().resume_writing()

    def drop(self) -> None:
        """Close it: it has no request."""
        self._connections.remove(self)
        self._close()

    @property
    def _serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _sending_still(self) -> bool:
        """Tell whether the client has not sent all of a request."""
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def _part(self) -> bool:
        """Throw the rest of an answered request away before closing; return whether there is one."""
        if self._serving or not self._sending_still:
            return False
        self._parting = True
        self._stop_timer()
        self.flow.resume_reading()
        self._begin_rest()
        return True

    def _begin_rest(self) -> None:
        if self._rest is None:
            self._rest = Rest(self.loop, self._close)

    def _stop_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _close_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


def descriptors_for_connections() -> int:
    """Return how many connections there may be, after asking for the most descriptors."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    given = _ENOUGH_DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _ENOUGH_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (given, most))
    return max(1, min(_MOST, given - _OTHER_DESCRIPTORS))
