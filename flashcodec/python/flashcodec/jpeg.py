"""Decode JPEG by libjpeg-turbo without Pillow's detours, where the package simplejpeg is installed: the same pixels."""

import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from flashcodec.heads import EXIF_ORIENTATION

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]

# MPO: several pictures, of which the first is a JPEG by itself; many telephones write it.
_FORMATS = ("JPEG", "MPO")
# What makes a picture of each orientation upright (Exif 2.3, tag Orientation).
_TURNS: dict[int, Callable[[Pixels], Pixels]] = {
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: np.rot90(pixels, 2).transpose(1, 0, 2),
    8: np.rot90,
}


# Fresh memory for each picture costs a quarter of decoding it: up to so many bytes a thread keeps its own.
_KEPT_BYTES = 64 << 20


def decoded(image: "Image", source: BinaryIO | memoryview, kept: bool) -> Pixels | None:
    """Decode a JPEG to RGB, uint8 [height, width, 3], upright by its EXIF orientation. Pillow has read its header.

    `kept`: the thread's own memory may be used, until it decodes the next one. None if Pillow is to decode it: what is
    no RGB or has something wrong with it, and everything without simplejpeg.
    """
    library = _library()
    if library is None or image.format not in _FORMATS or image.mode != "RGB":
        return None
    data = source if isinstance(source, memoryview) else whole(source)
    try:
        pixels: Pixels = library.decode_jpeg(data, "RGB", buffer=_memory.of(image) if kept else None)
    except ValueError:
        return None
    if pixels.shape != (image.height, image.width, 3):
        return None
    turn = _TURNS.get(image.getexif().get(EXIF_ORIENTATION, 1))
    return pixels if turn is None else np.ascontiguousarray(turn(pixels))


def whole(file: BinaryIO) -> bytes:
    """Return all bytes of a file, which Pillow goes on reading where it was."""
    place = file.tell()
    file.seek(0)
    data = file.read()
    file.seek(place)
    return data


class _Memory(threading.local):
    """Hold a thread's memory for pictures that it does not hand out."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def of(self, image: "Image") -> Pixels | None:
        size = image.width * image.height * 3
        if size > _KEPT_BYTES:
            return None
        if size > self._bytes.size:
            self._bytes = np.empty(size, np.uint8)
        return self._bytes[:size]


_memory = _Memory()


@cache
def _library() -> Any:
    try:
        return import_module("simplejpeg")
    except ImportError:
        return None
