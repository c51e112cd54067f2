"""Read what an image tells before it is decoded: which way is up, and what decoding it costs."""

import struct
from typing import TYPE_CHECKING, BinaryIO

from flashcodec.counts import PNG, chunks
from flashcodec.errors import LimitError

if TYPE_CHECKING:
    from PIL.Image import Image

EXIF_ORIENTATION = 0x0112
#: of a JPEG; encoders make about ten, and each goes over the whole picture
MAX_SCANS = 100
#: pixels of a picture in an ICO file, whose own entries hold 256 at most
MAX_ICON_SIDE = 1024

_JPEGS = ("JPEG", "MPO")
_START_OF_SCAN = b"\xff\xda"  # in compressed data, 0xff is followed by other bytes
_PIECE = 1 << 20
_ICON = b"\0\0\1\0"
_ICON_HEAD = struct.Struct("<4xH")  # the number of entries
_ICON_ENTRY = struct.Struct("<12xI")  # the place of a picture
_ICON_PICTURE = 24  # bytes that tell its size
_EXIF_BYTES = 1 << 20  # more than any camera writes


def orientation(image: "Image", file: BinaryIO) -> int:
    """Return the EXIF orientation (1 to 8) of an image, and have Pillow apply it. Pillow has read its head."""
    from PIL import Image

    if image.format == "PNG" and "exif" not in image.info and (late := _late_exif(file)):
        image.info["exif"] = b"Exif\0\0" + late
    found = Image.Image.getexif(image).get(EXIF_ORIENTATION)  # that of PNG would decode the image
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def check_cost(name: str, image: "Image", file: BinaryIO) -> None:
    """Raise LimitError, with the number, for an image that is slow to decode.

    It takes far longer than its size tells.
    """
    if image.format not in _JPEGS:
        return
    scans = _count(file, _START_OF_SCAN, MAX_SCANS)
    if scans > MAX_SCANS:
        raise LimitError(name, None, f"the JPEG has more than {MAX_SCANS} scans; save it with fewer, or as baseline")


def check_icon(name: str, file: BinaryIO) -> None:
    """Raise LimitError for an ICO file with a picture that is larger than icons are: Pillow decodes one as it opens."""
    file.seek(0)
    head = file.read(_ICON_HEAD.size)
    if head.startswith(_ICON) and len(head) == _ICON_HEAD.size:
        (count,) = _ICON_HEAD.unpack(head)
        entries = file.read(count * _ICON_ENTRY.size)
        for at in range(0, len(entries) - _ICON_ENTRY.size + 1, _ICON_ENTRY.size):
            file.seek(*_ICON_ENTRY.unpack_from(entries, at))
            width, height = _icon_size(file.read(_ICON_PICTURE))
            if max(width, height) > MAX_ICON_SIDE:
                limit = f"the limit of {MAX_ICON_SIDE} pixels a side"
                raise LimitError(name, None, f"the icon holds a picture of {width}x{height}, over {limit}")
    file.seek(0)


def _icon_size(head: bytes) -> tuple[int, int]:
    """Return the size of a picture of an icon, a PNG or a bitmap; (0, 0) if it has none."""
    if len(head) < _ICON_PICTURE:
        return 0, 0
    if head.startswith(PNG):
        width, height = struct.unpack_from(">II", head, 16)
        return width, height
    width, doubled = struct.unpack_from("<ii", head, 4)  # below the colours is a mask of the same size
    return abs(width), abs(doubled) // 2


def _count(file: BinaryIO, sign: bytes, most: int) -> int:
    """Return how often two bytes come in a file, up to one more than `most`; Pillow goes on where it was."""
    place, found, before = file.tell(), 0, b""
    file.seek(0)
    while found <= most and (piece := file.read(_PIECE)):
        found += (before + piece).count(sign)
        before = piece[-1:]
    file.seek(place)
    return found


def _late_exif(file: BinaryIO) -> bytes | None:
    """Return what the eXIf chunk holds, wherever it is in a PNG; Pillow sees the one before the pixels only."""
    place = file.tell()
    try:
        for kind, length in chunks(file):
            if kind == b"eXIf":
                return file.read(length) if length <= _EXIF_BYTES else None
    finally:
        file.seek(place)
    return None
