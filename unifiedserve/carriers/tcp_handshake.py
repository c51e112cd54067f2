"""Introduce two sides of the carrier `tcp` before a page is asked for.

    client                                    server
    greeting                                                    magic, version, a random number
                                              greeting
    introduction, layout                                        a proof of the token
                                              introduction, layout

Numbers are little-endian. Neither side shows the token itself, so an impostor at a server's port learns nothing: a
proof is an HMAC-SHA256 over both random numbers. What follows is in ipc_buffers/csrc/net/protocol.h.
"""

import asyncio
import hmac
import re
import secrets
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

_MAGIC, _VERSION = b"pagesout", 1
_GREETING = struct.Struct("<8sII16s")  # magic, version, unused, random
_INTRODUCTION = struct.Struct("<32sQII")  # proof, incarnation of the server, verdict, bytes of the layout
_MOST_LAYOUT = 64 << 10  # bytes


class HandshakeError(Exception):
    """Say what is wrong with the other side. The line goes on after its address."""


class _Verdict(IntEnum):
    WELCOME = 0
    WRONG_TOKEN = 1
    ANOTHER_SERVER = 2
    ANOTHER_LAYOUT = 3


@dataclass(frozen=True)
class Layout:
    """State what both sides must agree on: the pages' meaning, and for each pool bytes of a page and number of pages.

    Raises ValueError for a description or names that do not fit into lines.
    """

    description: str
    pools: Mapping[str, tuple[int, int]]

    def __post_init__(self) -> None:
        if not self.description or "\n" in self.description:
            raise ValueError(f"a description must be one line, not {self.description!r}")
        for name in self.pools:
            if not name or re.search(r"[ \n]", name):
                raise ValueError(f"a pool's name must be one word, not {name!r}")
        if len(self.encode()) > _MOST_LAYOUT:
            raise ValueError("a description that is too long")

    def encode(self) -> bytes:
        """Return it as lines: the description, then each pool's name, bytes of a page and number of pages."""
        pools = (f"{name} {page_bytes} {pages}" for name, (page_bytes, pages) in self.pools.items())
        return "".join(f"{line}\n" for line in (self.description, *pools)).encode()

    @classmethod
    def decode(cls, text: bytes) -> "Layout":
        """Read what `encode` has written; raises HandshakeError for anything else."""
        try:
            *lines, rest = text.decode().split("\n")
            description, pools = lines[0], [line.split(" ") for line in lines[1:]]
            sizes = {name: (_number(page_bytes), _number(pages)) for name, page_bytes, pages in pools}
            layout = cls(description, sizes)
        except (IndexError, ValueError):
            raise HandshakeError("does not describe its pages properly") from None
        if rest:
            raise HandshakeError("does not describe its pages properly")
        return layout

    def difference_from(self, there: "Layout", role: str) -> str:
        """Say what keeps pages from being read, with both values; `role` is what the other side does.

        Each side may have pools that the other lacks.
        """
        if self.description != there.description:
            return f"{role} {there.description!r}, which is not the {self.description!r} of this side"
        for name in self.pools.keys() & there.pools.keys():
            (here, _), (other, _) = self.pools[name], there.pools[name]
            if here != other:
                return f"has pages of {name!r} of {other} bytes, and this side of {here}"
        return ""


@dataclass(frozen=True)
class Identity:
    """Prove a side's identity, and name the server that it is, or means."""

    token: bytes
    incarnation: int
    layout: Layout


def parse_token(text: str) -> bytes:
    """Return the 32 bytes of a token of 64 hexadecimal digits; raises ValueError."""
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ValueError("a token has 64 hexadecimal digits")
    return bytes.fromhex(text)


async def meet_client(client: socket.socket, own: Identity) -> Layout:
    """Introduce a server and a client to each other; return the client's layout.

    Raises HandshakeError if the client is not to be served.
    """
    wire = _Wire(client)
    theirs, version = await wire.take_greeting("does not speak this protocol")
    ours = await wire.send_greeting()
    if version != _VERSION:  # it can tell by our greeting what is wrong
        raise HandshakeError(f"speaks version {version} of this protocol, not {_VERSION}")
    shown, incarnation, _, size = await wire.take_introduction()
    if not hmac.compare_digest(shown, _proof(own.token, b"client", theirs, ours)):
        await wire.send_introduction(bytes(32), 0, _Verdict.WRONG_TOKEN, b"")
        raise HandshakeError("does not have the token")
    there = await wire.take_layout(size)
    verdict, why = _Verdict.WELCOME, ""
    if incarnation != own.incarnation:
        verdict, why = _Verdict.ANOTHER_SERVER, "asks for a server that was here before"
    if difference := own.layout.difference_from(there, "asks for"):
        verdict, why = _Verdict.ANOTHER_LAYOUT, difference
    proof = _proof(own.token, b"server", theirs, ours)
    await wire.send_introduction(proof, own.incarnation, verdict, own.layout.encode())
    if why:
        raise HandshakeError(why)
    return there


async def meet_server(server: socket.socket, own: Identity) -> None:
    """Introduce a client and the server that it means to each other.

    Raises HandshakeError if nothing can be read from it.
    """
    wire = _Wire(server)
    ours = await wire.send_greeting()
    theirs, version = await wire.take_greeting("serves something else than pages")
    if version != _VERSION:
        raise HandshakeError(f"speaks version {version} of the protocol, and this side {_VERSION}")
    proof = _proof(own.token, b"client", ours, theirs)
    await wire.send_introduction(proof, own.incarnation, _Verdict.WELCOME, own.layout.encode())
    shown, incarnation, verdict, size = await wire.take_introduction()
    if verdict == _Verdict.WRONG_TOKEN:
        raise HandshakeError("has another token than this side")
    if not hmac.compare_digest(shown, _proof(own.token, b"server", ours, theirs)):
        raise HandshakeError("does not have the token, which is why nothing is read from it")
    if difference := own.layout.difference_from(await wire.take_layout(size), "serves"):
        raise HandshakeError(difference)
    if verdict != _Verdict.WELCOME or incarnation != own.incarnation:
        raise HandshakeError("is another server than the one that was there, whose pages are gone")


class _Wire:
    """Take no byte more than it is asked for. Others read what follows."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    async def send_greeting(self) -> bytes:
        """Return the random number that it names."""
        number = secrets.token_bytes(16)
        await self._send(_GREETING.pack(_MAGIC, _VERSION, 0, number))
        return number

    async def take_greeting(self, otherwise: str) -> tuple[bytes, int]:
        """Return the other side's random number, and its version; garbage is known by its first bytes."""
        data = await self._take(_GREETING.size, _MAGIC, otherwise)
        _, version, _, number = _GREETING.unpack(data)
        return number, version

    async def send_introduction(self, proof: bytes, incarnation: int, verdict: _Verdict, layout: bytes) -> None:
        await self._send(_INTRODUCTION.pack(proof, incarnation, verdict, len(layout)) + layout)

    async def take_introduction(self) -> tuple[bytes, int, int, int]:
        """Return a proof, an incarnation, a verdict, and the bytes of the layout."""
        proof, incarnation, verdict, size = _INTRODUCTION.unpack(await self._take(_INTRODUCTION.size))
        return proof, incarnation, verdict, size

    async def take_layout(self, size: int) -> Layout:
        if size > _MOST_LAYOUT:
            raise HandshakeError("describes itself at too great a length")
        return Layout.decode(await self._take(size))

    async def _send(self, data: bytes) -> None:
        with _broken():
            await self._loop.sock_sendall(self._connection, data)

    async def _take(self, size: int, start: bytes = b"", otherwise: str = "") -> bytes:
        data = b""
        while len(data) < size:
            with _broken():
                part = await self._loop.sock_recv(self._connection, size - len(data))
            if not part:
                raise HandshakeError("closed the connection")
            data += part
            if data[: len(start)] != start[: len(data)]:
                raise HandshakeError(otherwise)
        return data


@contextmanager
def _broken() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HandshakeError(f"the connection broke: {error.strerror}") from None


def _proof(token: bytes, role: bytes, client: bytes, server: bytes) -> bytes:
    return hmac.digest(token, role + client + server, "sha256")


def _number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,20}", text):
        raise ValueError(text)
    return int(text)
