"""MPEG transport streams (ISO/IEC 13818-1): one video track in packets of 188 bytes, with parameter sets inside."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from faulty_files.recording import Packet, Recording

_PACKET, _SYNC = 188, 0x47
_VIDEO_PID, _SERVICES_PID = 0x100, 0x11
_PAYLOAD_START, _ADAPTATION, _PAYLOAD = 0x40, 0x20, 0x10
_RANDOM_ACCESS, _PCR = 0x40, 0x10
_TICKS = 90000
_PCR_LEAD = _TICKS // 2  # how much earlier than its decoding time a packet arrives
_TABLES_EVERY = 12
_TIME_MASK = (1 << 33) - 1


def read(data: bytes) -> Recording:
    """Read what FFmpeg wrote; the header is the first packet of each table that says what the stream is."""
    tables: dict[int, bytes] = {}
    units: list[tuple[bool, bytearray]] = []
    for packet in _packets(data):
        if _pid(packet) != _VIDEO_PID:
            tables.setdefault(_pid(packet), packet)
            continue
        begin = 4 + (1 + packet[4] if packet[3] & _ADAPTATION else 0)
        if packet[1] & _PAYLOAD_START:
            key = bool(packet[3] & _ADAPTATION and packet[4] and packet[5] & _RANDOM_ACCESS)
            units.append((key, bytearray()))
        units[-1][1].extend(packet[begin:])
    header = b"".join(tables[pid] for pid in sorted(tables) if pid != _SERVICES_PID)
    return Recording((header,), tuple(_unit(bytes(unit), key) for key, unit in units), _TICKS)


def write(recording: Recording) -> bytes:
    counters: Counter[int] = Counter()
    parts: list[bytes] = []
    for number, packet in enumerate(recording.packets):
        tables = _packets(recording.headers[0]) if number % _TABLES_EVERY == 0 else iter(())
        for piece in chain(tables, _split(_pes(packet), packet)):
            parts.append(piece[:3] + bytes([piece[3] & 0xF0 | counters[_pid(piece)] % 16]) + piece[4:])
            counters[_pid(piece)] += 1
    return b"".join(parts)


def write_bare(recording: Recording) -> bytes:
    """Write an elementary stream: no container at all."""
    return b"".join(packet.data for packet in recording.packets)


def _packets(data: bytes) -> Iterator[bytes]:
    return (data[at : at + _PACKET] for at in range(0, len(data), _PACKET))


def _pid(packet: bytes) -> int:
    return int.from_bytes(packet[1:3], "big") & 0x1FFF


def _unit(pes: bytes, key: bool) -> Packet:
    flags, length = pes[7] >> 6, pes[8]
    pts = _time(pes[9:14]) if flags & 2 else None
    dts = _time(pes[14:19]) if flags & 1 else pts
    return Packet(pes[9 + length :], pts, dts, key)


def _pes(packet: Packet) -> bytes:
    times = b""
    flags = 0
    if packet.pts is not None:
        apart = packet.dts is not None and packet.dts != packet.pts
        flags = 0xC0 if apart else 0x80
        times = _stamp(3 if apart else 2, packet.pts)
        times += _stamp(1, packet.dts or 0) if apart else b""
    return b"\0\0\1\xe0\0\0\x80" + bytes([flags, len(times)]) + times + packet.data


def _split(pes: bytes, packet: Packet) -> Iterator[bytes]:
    fields, start = _clock(packet), _PAYLOAD_START
    while pes:
        adaptation = bytes([len(fields)]) + fields if fields else b""
        adaptation = _filled(adaptation, _PACKET - 4 - len(adaptation) - len(pes))
        taken = _PACKET - 4 - len(adaptation)
        flags = _PAYLOAD | (_ADAPTATION if adaptation else 0)
        yield bytes([_SYNC, start | _VIDEO_PID >> 8, _VIDEO_PID & 0xFF, flags]) + adaptation + pes[:taken]
        pes, fields, start = pes[taken:], b"", 0


def _filled(adaptation: bytes, filling: int) -> bytes:
    if filling <= 0:
        return adaptation
    if not adaptation:
        return bytes([filling - 1]) + (b"\0" + b"\xff" * (filling - 2) if filling > 1 else b"")
    return bytes([adaptation[0] + filling]) + adaptation[1:] + b"\xff" * filling


def _clock(packet: Packet) -> bytes:
    if packet.dts is None:
        return bytes([_RANDOM_ACCESS]) if packet.key else b""
    base = (packet.dts - _PCR_LEAD) & _TIME_MASK
    return bytes([_PCR | (_RANDOM_ACCESS if packet.key else 0)]) + (base << 15 | 0x7E00).to_bytes(6, "big")


def _stamp(mark: int, time: int) -> bytes:
    time &= _TIME_MASK
    value = mark << 36 | (time >> 30) << 33 | 1 << 32 | (time >> 15 & 0x7FFF) << 17 | 1 << 16 | (time & 0x7FFF) << 1 | 1
    return value.to_bytes(5, "big")


def _time(stamp: bytes) -> int:
    value = int.from_bytes(stamp, "big")
    return (value >> 33 & 7) << 30 | (value >> 17 & 0x7FFF) << 15 | value >> 1 & 0x7FFF
