"""Count the parts of an image's file. More than encoders write are refused before Pillow goes through them."""

import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import BinaryIO, NamedTuple

from flashcodec.errors import LimitError

MAX_CHUNKS = 1024
"""Chunks of a PNG beside those of its pictures; encoders write about ten."""

MAX_MARKERS = 1024
"""Markers of a JPEG before its first scan; each may have 64 KiB, and encoders write about ten."""

MAX_STRIPS = 131072
"""Strips or tiles of a TIFF: a strip a row of the highest image, for each of four colours."""

MAX_BLOCKS = 65536
"""Blocks of a GIF before its first picture, of up to 255 bytes."""

PNG = b"\x89PNG\r\n\x1a\n"
_CHUNK = struct.Struct(">I4s")
_CHECKSUM = 4  # bytes behind a chunk
_MOST_CHUNKS = 65536  # that are walked through, those of pictures among them
_PICTURE_CHUNKS = (b"IDAT", b"fdAT", b"fcTL")
_JPEG = b"\xff\xd8"
_START_OF_SCAN = 0xDA
_LONE_MARKERS = {0x00, 0x01, *range(0xD0, 0xDA)}  # have no length behind them
_GIFS = (b"GIF87a", b"GIF89a")
_TIFFS = {b"II*\0": ("<", False), b"MM\0*": (">", False), b"II+\0": ("<", True), b"MM\0+": (">", True)}
_STRIP_OFFSETS, _TILE_OFFSETS = 273, 324


class _Parts(NamedTuple):
    """Describe how a format's parts are counted, their limit and their name."""

    counted: Callable[[BinaryIO, int], int]
    most: int
    name: str


def check_parts(name: str, file: BinaryIO) -> None:
    """Raise LimitError for an image of too many parts. Reading it takes far longer than its size tells.

    The file is then at its start again.
    """
    file.seek(0)
    parts = _parts_of(file.read(len(PNG)))
    if parts is not None and parts.counted(file, parts.most) > parts.most:
        raise LimitError(name, None, f"the image has more than {parts.most} {parts.name}; save it again with fewer")
    file.seek(0)


def chunks(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the kind and length of each chunk of a PNG. The file must be at its contents."""
    place = len(PNG)
    for _ in range(_MOST_CHUNKS):
        file.seek(place)
        head = file.read(_CHUNK.size)
        if len(head) < _CHUNK.size:
            return
        length, kind = _CHUNK.unpack(head)
        yield kind, length
        place += _CHUNK.size + length + _CHECKSUM


def _parts_of(head: bytes) -> _Parts | None:
    if head == PNG:
        return _Parts(_count_chunks, MAX_CHUNKS, "chunks that are no pictures (PNG)")
    if head.startswith(_JPEG):
        return _Parts(_count_markers, MAX_MARKERS, "markers before its first scan (JPEG)")
    if head.startswith(_GIFS):
        return _Parts(_count_blocks, MAX_BLOCKS, "blocks before its first picture (GIF)")
    if head[:4] in _TIFFS:
        return _Parts(_count_strips, MAX_STRIPS, "strips or tiles (TIFF)")
    return None


def _count_chunks(file: BinaryIO, most: int) -> int:
    others = (kind for kind, _ in chunks(file) if kind not in _PICTURE_CHUNKS)
    return sum(1 for _ in islice(others, most + 1))


def _count_markers(file: BinaryIO, most: int) -> int:
    """Return how many markers come before the first scan. Bytes that fill up between them are included."""
    file.seek(len(_JPEG))
    for count in range(most + 1):
        head = file.read(2)
        if len(head) < 2 or head[0] != 0xFF or head[1] == _START_OF_SCAN:
            return count
        if head[1] == 0xFF:
            file.seek(-1, 1)
        elif head[1] not in _LONE_MARKERS:
            length = int.from_bytes(file.read(2), "big")
            file.seek(max(0, length - 2), 1)
    return most + 1


def _count_blocks(file: BinaryIO, most: int) -> int:
    """Return how many blocks the extensions before the first picture have. Each extension's own one is included."""
    file.seek(10)
    flags = file.read(3)[:1] or b"\0"
    if flags[0] & 0x80:
        file.seek(3 << (flags[0] & 7) + 1, 1)  # the colours
    inside = False
    for count in range(most + 1):
        head = file.read(1)
        if inside:
            size = head[0] if head else 0
            inside = bool(size)
            file.seek(size, 1)
        elif head != b"!":
            return count
        else:
            inside = bool(file.read(1))
    return most + 1


def _count_strips(file: BinaryIO, most: int) -> int:
    """Return how many strips or tiles the first directory of a TIFF names."""
    file.seek(0)
    order, big = _TIFFS[file.read(4)]
    start, number, entry = ("4xQ", "Q", "HHQ8s") if big else ("I", "H", "HHI4s")
    found = 0
    try:
        file.seek(*_read(file, order + start))
        (entries,) = _read(file, order + number)
        for _ in range(min(entries, most)):
            tag, _, count, _ = _read(file, order + entry)
            if tag in (_STRIP_OFFSETS, _TILE_OFFSETS):
                found = max(found, count)
    except (struct.error, OverflowError, ValueError, OSError):  # cut off, or no place in a file: Pillow will say so
        pass
    return found


def _read(file: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))
