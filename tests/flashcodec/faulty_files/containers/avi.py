"""AVI: one video track, whose frames have no times and whose index flags key frames."""

import struct
from collections.abc import Iterator

from faulty_files.recording import Packet, Recording

_KEY = 0x10
_PALETTE = b"00pc"
_TICKS = 25


def read(data: bytes) -> Recording:
    parts = dict(_chunks(data[12:]))
    header, movie, index = parts[b"hdrl"], parts[b"movi"], parts[b"idx1"]
    flags = [struct.unpack_from("<4sI", index, at) for at in range(0, len(index), 16)]
    packets: list[Packet] = []
    side = b""
    for (name, body), (_, flag) in zip(_chunks(movie), flags, strict=True):
        if name == _PALETTE:
            side = body
            continue
        number = len(packets)
        packets.append(Packet(body, number, number, bool(flag & _KEY), side=side))
        side = b""
    return Recording((header,), tuple(packets), _TICKS)


def write(recording: Recording) -> bytes:
    movie, index = b"movi", b""
    for name, body, key in _written(recording):
        index += struct.pack("<4sIII", name, _KEY if key else 0, len(movie), len(body))
        movie += _chunk(name, body)
    body = b"AVI " + _chunk(b"LIST", b"hdrl" + recording.headers[0]) + _chunk(b"LIST", movie) + _chunk(b"idx1", index)
    return _chunk(b"RIFF", body)


def _written(recording: Recording) -> Iterator[tuple[bytes, bytes, bool]]:
    for packet in recording.packets:
        if packet.side:
            yield _PALETTE, packet.side, False
        yield b"00dc", packet.data, packet.key


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the chunks in a list; lists in it go by the names of what they are lists of."""
    at = 0
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        body = data[at + 8 : at + 8 + size]
        yield (body[:4], body[4:]) if name == b"LIST" else (name, body)
        at += 8 + size + size % 2


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack("<4sI", name, len(body)) + body + bytes(len(body) % 2)
