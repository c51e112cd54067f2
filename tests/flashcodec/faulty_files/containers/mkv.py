"""Matroska and WebM (RFC 9559): one video track, in blocks with a time each."""

import struct
from collections.abc import Iterator

from faulty_files.recording import Packet, Recording

_EBML, _SEGMENT, _INFO, _TRACKS, _CLUSTER = 0x1A45DFA3, 0x18538067, 0x1549A966, 0x1654AE6B, 0x1F43B675
_CLUSTER_TIME, _SIMPLE_BLOCK, _BLOCK_GROUP, _BLOCK, _REFERENCE = 0xE7, 0xA3, 0xA0, 0xA1, 0xFB
_KEY = 0x80
_CLUSTER_TICKS = 400
_TICKS = 1000


def read(data: bytes) -> Recording:
    (segment,) = (body for name, body in _elements(data) if name == _SEGMENT)
    headers = tuple(body for name, body in _elements(segment) if name == _TRACKS)
    clusters = [body for name, body in _elements(segment) if name == _CLUSTER]
    return Recording(headers, tuple(packet for cluster in clusters for packet in _blocks(cluster)), _TICKS)


def write(recording: Recording) -> bytes:
    """Write simple blocks, and no cues."""
    head = _element(0x4282, b"matroska") + _number(0x4287, 4) + _number(0x4285, 2)
    info = _number(0x2AD7B1, 1_000_000) + _element(0x4D80, b"x") + _element(0x5741, b"x")
    body = _element(_INFO, info) + _element(_TRACKS, recording.headers[0]) + b"".join(_clusters(recording))
    return _element(_EBML, head) + _element(_SEGMENT, body)


def _clusters(recording: Recording) -> Iterator[bytes]:
    blocks: list[bytes] = []
    begin = 0
    for packet in recording.packets:
        time = packet.pts or 0
        if blocks and not 0 <= time - begin < _CLUSTER_TICKS:
            yield _element(_CLUSTER, _number(_CLUSTER_TIME, begin) + b"".join(blocks))
            blocks = []
        begin = begin if blocks else max(0, time)
        flags = _KEY if packet.key else 0
        blocks.append(_element(_SIMPLE_BLOCK, b"\x81" + struct.pack(">hB", time - begin, flags) + packet.data))
    yield _element(_CLUSTER, _number(_CLUSTER_TIME, begin) + b"".join(blocks))


def _blocks(cluster: bytes) -> Iterator[Packet]:
    begin = 0
    for name, body in _elements(cluster):
        if name == _CLUSTER_TIME:
            begin = int.from_bytes(body, "big")
        elif name == _SIMPLE_BLOCK:
            yield _packet(body, begin, key=bool(body[3] & _KEY))
        elif name == _BLOCK_GROUP:
            parts = dict(_elements(body))
            yield _packet(parts[_BLOCK], begin, key=_REFERENCE not in parts)


def _packet(block: bytes, begin: int, key: bool) -> Packet:
    time = begin + struct.unpack_from(">h", block, 1)[0]
    return Packet(block[4:], time, None, key)


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        name_length, length_at = _length(data[at]), at + _length(data[at])
        size_length = _length(data[length_at])
        size = int.from_bytes(data[length_at : length_at + size_length], "big") & ((1 << 7 * size_length) - 1)
        body = length_at + size_length
        if size == (1 << 7 * size_length) - 1:
            size = len(data) - body
        yield int.from_bytes(data[at : at + name_length], "big"), data[body : body + size]
        at = body + size


def _length(first: int) -> int:
    return 9 - first.bit_length()


def _element(name: int, body: bytes) -> bytes:
    return name.to_bytes((name.bit_length() + 7) // 8, "big") + (len(body) | 1 << 56).to_bytes(8, "big") + body


def _number(name: int, value: int) -> bytes:
    return _element(name, value.to_bytes(8, "big"))
