"""The protocol of the carrier `tcp` once more, from its description: peers that keep to it, up to a point."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

from sides import SETTING, SIZES, TOKEN

MAGIC, VERSION = b"pagesout", 1
GREETING = struct.Struct("<8sII16s")
INTRODUCTION = struct.Struct("<32sQII")
REQUEST = struct.Struct("<QII")
PART = struct.Struct("<II")
FRAME = struct.Struct("<QII")
READ, FORGET = 1, 2
PAGES, END, FAILURE = 1, 2, 3
WELCOME, WRONG_TOKEN, ANOTHER_SERVER, ANOTHER_LAYOUT = range(4)
INCARNATION = 77


def proof(token: str, role: str, client: bytes, server: bytes) -> bytes:
    return hmac.new(bytes.fromhex(token), role.encode() + client + server, hashlib.sha256).digest()


def layout(description: str = SETTING.description) -> bytes:
    lines = [description, *(f"{name} {size} {count}" for name, (count, size) in sorted(SIZES.items()))]
    return "".join(f"{line}\n" for line in lines).encode()


def request(transfer: int, pool: int, pages: list[int], epochs: list[int]) -> bytes:
    body = PART.pack(pool, len(pages)) + struct.pack(f"<{len(pages)}i{len(epochs)}Q", *pages, *epochs)
    return REQUEST.pack(transfer, READ, len(body)) + body


class Peer:
    """A connection on which either side is played."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def take(self, size: int) -> bytes:
        """Receive so many bytes; raises EOFError if fewer come."""
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError(f"{len(data)} of {size} bytes")
            data += part
        return data

    def is_left(self) -> bool:
        """Wait until the other side has ended the connection, whatever it sends before."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        return True

    def reset(self) -> None:
        """End it as a process that crashed does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@dataclass
class Asked:
    """A request as a server reads it."""

    transfer: int
    kind: int
    pool: int
    pages: tuple[int, ...]


class ServerPeer(Peer):
    """A server that has accepted a connection."""

    def greet(self, magic: bytes = MAGIC, version: int = VERSION) -> None:
        _, _, _, self.client = GREETING.unpack(self.take(GREETING.size))
        self.own = secrets.token_bytes(16)
        self.send(GREETING.pack(magic, version, 0, self.own))

    def introduce(
        self,
        token: str = TOKEN,
        incarnation: int = INCARNATION,
        verdict: int = WELCOME,
        text: bytes | None = None,
        length: int | None = None,
    ) -> None:
        shown, _, _, size = INTRODUCTION.unpack(self.take(INTRODUCTION.size))
        assert shown == proof(TOKEN, "client", self.client, self.own), "the client shows that it has the token"
        self.take(size)
        text = layout() if text is None else text
        own = proof(token, "server", self.client, self.own)
        self.send(INTRODUCTION.pack(own, incarnation, verdict, len(text) if length is None else length) + text)

    def welcome(self) -> None:
        self.greet()
        self.introduce()

    def asked(self) -> Asked:
        transfer, kind, size = REQUEST.unpack(self.take(REQUEST.size))
        if kind == FORGET:
            return Asked(transfer, kind, 0, ())
        pool, count = PART.unpack(self.take(PART.size))
        body = self.take(size - PART.size)
        return Asked(transfer, kind, pool, struct.unpack(f"<{count}i", body[: 4 * count]))

    def frame(self, transfer: int, kind: int, data: bytes = b"", size: int | None = None) -> None:
        self.send(FRAME.pack(transfer, kind, len(data) if size is None else size) + data)


class FakeServer:
    """A server whose connections are answered by functions, one after the other, each in a thread."""

    def __init__(self, *scripts: Callable[[ServerPeer], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}?server={INCARNATION:x}"
        self.failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._serve, args=scripts, daemon=True)
        self._thread.start()

    def _serve(self, *scripts: Callable[[ServerPeer], None]) -> None:
        for script in scripts:
            connection, _ = self._listener.accept()
            with connection:
                try:
                    script(ServerPeer(connection))
                except (EOFError, OSError):
                    pass  # the client has gone
                except BaseException as error:
                    self.failures.append(error)

    def end(self) -> None:
        """Raise what a script has raised, once all have been played."""
        self._thread.join()
        self._listener.close()
        if self.failures:
            raise self.failures[0]


class ClientPeer(Peer):
    """A client of a real server."""

    def __init__(self, address: str) -> None:
        where, _, incarnation = address.removeprefix("tcp://").partition("?server=")
        host, _, port = where.rpartition(":")
        super().__init__(socket.create_connection((host, int(port))))
        self.incarnation = int(incarnation, 16)

    def greet(self, magic: bytes = MAGIC, version: int = VERSION) -> tuple[bytes, int]:
        self.own = secrets.token_bytes(16)
        self.send(GREETING.pack(magic, version, 0, self.own))
        magic, version, _, self.server = GREETING.unpack(self.take(GREETING.size))
        return magic, version

    def introduce(self, token: str = TOKEN, text: bytes | None = None, length: int | None = None) -> int:
        text = layout() if text is None else text
        own = proof(token, "client", self.own, self.server)
        self.send(INTRODUCTION.pack(own, self.incarnation, 0, len(text) if length is None else length) + text)
        shown, _, verdict, size = INTRODUCTION.unpack(self.take(INTRODUCTION.size))
        if verdict != WRONG_TOKEN:
            assert shown == proof(token, "server", self.own, self.server), "the server shows that it has the token"
        self.take(size)
        return int(verdict)

    def enter(self) -> ClientPeer:
        self.greet()
        assert self.introduce() == WELCOME
        return self

    def frame(self) -> tuple[int, int, bytes]:
        transfer, kind, size = FRAME.unpack(self.take(FRAME.size))
        return transfer, kind, self.take(size)
