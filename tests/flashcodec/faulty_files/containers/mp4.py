"""MP4 and MOV (ISO/IEC 14496-12): one video track, its samples in a table or in fragments."""

import struct
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise, repeat

from faulty_files.recording import Packet, Recording

_MATRIX = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
_MEDIA = (b"moov", b"trak", b"mdia")
_TABLE = (*_MEDIA, b"minf", b"stbl")
_MOVIE_TICKS = 1000
_FRAGMENT_SAMPLES = 7
_NO_KEY = 0x10000  # sample_is_non_sync_sample
_EMPTY = -1  # the media time of an edit that shows nothing


def read(data: bytes) -> Recording:
    (ticks,) = struct.unpack_from(">I", _body(data, *_MEDIA, b"mdhd"), 12)
    headers = tuple(_box(name, body) for name, body in _boxes(_body(data, *_TABLE, b"stsd")[8:]))
    return Recording(headers, tuple(_samples(data)), ticks, tuple(_edits(data, ticks)))


def write(recording: Recording) -> bytes:
    """Write a table of samples; time that goes back is written as an offset of composition."""
    front = _box(b"ftyp", b"isom\0\0\2\0isomavc1")
    packets = recording.packets
    media = b"".join(packet.data for packet in packets)
    offsets, at = [], len(front) + 8
    for packet in packets:
        offsets.append(at)
        at += len(packet.data)
    steps = _steps(recording)
    starts = list(_running_sum(steps))
    table = [
        _stsd(recording),
        _list(b"stts", [_numbers(1, step) for step in steps]),
        *_composition_offsets(packets, starts),
        *_key_table(packets),
        _list(b"stsc", [_numbers(n + 1, 1, packet.header + 1) for n, packet in enumerate(packets)]),
        _box(b"stsz", _numbers(0, 0, len(packets), *(len(packet.data) for packet in packets))),
        _list(b"stco", [_numbers(offset) for offset in offsets]),
    ]
    return front + _box(b"mdat", media) + _movie(recording, table, sum(steps), b"")


def write_fragments(recording: Recording) -> bytes:
    """Write movie fragments, whose samples have flags and times of their own."""
    front = _box(b"ftyp", b"iso5\0\0\2\0iso5isom")
    table = [_stsd(recording), *(_box(name, _numbers(0, 0)) for name in (b"stts", b"stsc", b"stco"))]
    table.append(_box(b"stsz", _numbers(0, 0, 0)))
    extends = _box(b"mvex", _box(b"trex", _numbers(0, 1, 1, 0, 0, 0)))
    steps = _steps(recording)
    starts = list(_running_sum(steps))
    return front + _movie(recording, table, 0, extends) + b"".join(_fragments(recording, steps, starts))


def _fragments(recording: Recording, steps: list[int], starts: list[int]) -> Iterator[bytes]:
    packets = recording.packets
    cuts = [n for n in range(len(packets)) if n % _FRAGMENT_SAMPLES == 0 or _new_header(packets, n)]
    for number, (first, last) in enumerate(pairwise([*cuts, len(packets)])):
        rows = [
            _numbers(step, len(packet.data), 0 if packet.key else _NO_KEY, _offset(packet, start))
            for packet, step, start in zip(packets[first:last], steps[first:last], starts[first:last], strict=True)
        ]
        track = _box(b"tfhd", _numbers(0x20002, 1, packets[first].header + 1))
        track += _box(b"tfdt", _numbers(0x1000000) + struct.pack(">Q", starts[first]))
        head = 8 + 16 + 8 + len(track) + 20 + 16 * len(rows)  # moof, mfhd, traf, its boxes, trun
        track += _box(b"trun", _numbers(0x1000F01, len(rows), head + 8, *()), *rows)
        fragment = _box(b"moof", _box(b"mfhd", _numbers(0, number + 1)), _box(b"traf", track))
        yield fragment + _box(b"mdat", b"".join(packet.data for packet in packets[first:last]))


def _new_header(packets: tuple[Packet, ...], number: int) -> bool:
    return packets[number].header != packets[number - 1].header


def _steps(recording: Recording) -> list[int]:
    """Return for how long each sample is, in decoding order; where its time goes back, for no time."""
    times = [packet.dts or 0 for packet in recording.packets]
    steps = [max(0, after - before) for before, after in pairwise(times)]
    return [*steps, steps[-1] if steps else 1]


def _running_sum(steps: Iterable[int]) -> Iterator[int]:
    total = 0
    for step in steps:
        yield total
        total += step


def _offset(packet: Packet, start: int) -> int:
    return 0 if packet.pts is None else packet.pts - start


def _composition_offsets(packets: tuple[Packet, ...], starts: list[int]) -> Iterator[bytes]:
    offsets = [_offset(packet, start) for packet, start in zip(packets, starts, strict=True)]
    if any(offsets):
        yield _list(b"ctts", [_numbers(1, offset) for offset in offsets], version=1)


def _key_table(packets: tuple[Packet, ...]) -> Iterator[bytes]:
    """Yield the table of key frames; a track without one has no other samples."""
    if not all(packet.key for packet in packets):
        yield _list(b"stss", [_numbers(n + 1) for n, packet in enumerate(packets) if packet.key])


def _movie(recording: Recording, table: list[bytes], duration: int, extends: bytes) -> bytes:
    seconds = duration * _MOVIE_TICKS // recording.ticks
    width_height = struct.unpack_from(">HH", recording.headers[0], 32)
    size = _numbers(*(side << 16 for side in width_height))
    track = [
        _box(b"tkhd", _numbers(3, 0, 0, 1, 0, seconds, 0, 0, 0, 0), _MATRIX, size),
        *_edit_list(recording),
        _box(
            b"mdia",
            _box(b"mdhd", _numbers(0, 0, 0, recording.ticks, duration), b"\x55\xc4\0\0"),
            _box(b"hdlr", _numbers(0, 0), b"vide", _numbers(0, 0, 0), b"v\0"),
            _box(
                b"minf",
                _box(b"vmhd", _numbers(1, 0, 0)),
                _box(b"dinf", _box(b"dref", _numbers(0, 1), _box(b"url ", _numbers(1)))),
                _box(b"stbl", *table),
            ),
        ),
    ]
    head = _numbers(0, 0, 0, _MOVIE_TICKS, seconds, 0x10000) + b"\1\0" + bytes(10) + _MATRIX + bytes(24) + _numbers(2)
    return _box(b"moov", _box(b"mvhd", head), _box(b"trak", *track), extends)


def _edit_list(recording: Recording) -> Iterator[bytes]:
    if recording.edits:
        rows = [
            _numbers(duration * _MOVIE_TICKS // recording.ticks, media_time, 0x10000)
            for duration, media_time in recording.edits
        ]
        yield _box(b"edts", _list(b"elst", rows))


def _edits(data: bytes, ticks: int) -> Iterator[tuple[int, int]]:
    body = _body(data, b"moov", b"trak", b"edts", b"elst")
    (movie_ticks,) = struct.unpack_from(">I", _body(data, b"moov", b"mvhd"), 12)
    for at in range(8, len(body), 12):
        duration, media_time = struct.unpack_from(">Ii", body, at)
        yield duration * ticks // movie_ticks, media_time


def _samples(data: bytes) -> Iterator[Packet]:
    sizes = _sizes(data)
    keys = _column(data, b"stss", 4)
    key_numbers = {number for (number,) in keys} if _body(data, *_TABLE, b"stss") else set(range(1, len(sizes) + 1))
    steps = list(chain.from_iterable(repeat(step, count) for count, step in _column(data, b"stts", 8)))
    offsets = list(chain.from_iterable(repeat(offset, count) for count, offset in _column(data, b"ctts", 8)))
    dts = 0
    for number, (place, size) in enumerate(zip(_places(data, sizes), sizes, strict=True)):
        pts = dts + (offsets[number] if offsets else 0)
        yield Packet(data[place : place + size], pts, dts, number + 1 in key_numbers)
        dts += steps[number]


def _sizes(data: bytes) -> list[int]:
    body = _body(data, *_TABLE, b"stsz")
    size, count = struct.unpack_from(">II", body, 4)
    return [size] * count if size else list(struct.unpack_from(f">{count}I", body, 12))


def _places(data: bytes, sizes: list[int]) -> Iterator[int]:
    runs = _column(data, b"stsc", 12)
    sample = 0
    for chunk, (place,) in enumerate(_column(data, b"stco", 4), 1):
        count = [samples for first, samples, _ in runs if first <= chunk][-1]
        for _ in range(count):
            yield place
            place += sizes[sample]
            sample += 1


def _column(data: bytes, name: bytes, row: int) -> list[tuple[int, ...]]:
    """Return the rows of a table of signed numbers of four bytes."""
    body = _body(data, *_TABLE, name)
    return [struct.unpack_from(f">{row // 4}i", body, at) for at in range(8, len(body), row)]


def _boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + 8 <= len(data):
        size, name = struct.unpack_from(">I4s", data, at)
        yield name, data[at + 8 : at + size]
        at += size


def _body(data: bytes, *path: bytes) -> bytes:
    """Return the body of a box within boxes; nothing if it is not there."""
    for wanted in path:
        data = next((body for name, body in _boxes(data) if name == wanted), b"")
    return data


def _stsd(recording: Recording) -> bytes:
    return _list(b"stsd", list(recording.headers))


def _box(name: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), name) + body


def _list(name: bytes, rows: list[bytes], version: int = 0) -> bytes:
    return _box(name, _numbers(version << 24, len(rows)), *rows)


def _numbers(*values: int) -> bytes:
    return b"".join((value & 0xFFFFFFFF).to_bytes(4, "big") for value in values)
