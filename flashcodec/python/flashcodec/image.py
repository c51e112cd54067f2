"""Still images: Pillow decodes them; they are resized and cut into patches as the frames of a video are.

Needs Pillow (`pip install pillow`), which is imported when first used.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flashcodec import _core
from flashcodec.errors import DecodeError
from flashcodec.layouts import PatchLayout
from flashcodec.limits import Limits

if TYPE_CHECKING:
    from PIL.Image import Image

ImageSource = str | os.PathLike[str] | bytes | bytearray | memoryview

MAX_PIXELS = Limits.max_pixels

MAX_SIDE = 32768
"""Pixels; images wider or higher are refused."""

# Formats that Pillow decodes by itself, without running other programs.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "ICO", "AVIF")

_EXIF_ORIENTATION = 0x0112
_EXIF_TRANSPOSED = (5, 6, 7, 8)


def image_size(source: ImageSource, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """(width, height) in pixels of an image once it is upright, from its header.

    Raises DecodeError if it is no image, or larger than `max_pixels` or `MAX_SIDE`.
    """
    with _opened(source, max_pixels) as image:
        transposed = image.getexif().get(_EXIF_ORIENTATION) in _EXIF_TRANSPOSED
        return (image.height, image.width) if transposed else (image.width, image.height)


def decode_image(source: ImageSource, max_pixels: int = MAX_PIXELS) -> npt.NDArray[np.uint8]:
    """An image as RGB, uint8 [height, width, 3], turned upright by its EXIF orientation; transparency is dropped.

    Raises DecodeError if it cannot be decoded, or is larger than `max_pixels` or `MAX_SIDE`.
    """
    return np.array(_decode(source, max_pixels), np.uint8)


def image_patches(source: ImageSource, layout: PatchLayout, max_pixels: int = MAX_PIXELS) -> npt.NDArray[np.uint8]:
    """An image resized (antialiased bicubic) as one temporal group: uint8 [rows_per_group, row_bytes].

    Raises DecodeError as `decode_image` does.
    """
    rgb = np.ascontiguousarray(_decode(source, max_pixels))
    return _core.lay_out(rgb, layout.to_core()).reshape(layout.group_shape(1))


def _decode(source: ImageSource, max_pixels: int) -> "Image":
    from PIL import ImageOps

    with _opened(source, max_pixels) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


@contextmanager
def _opened(source: ImageSource, max_pixels: int) -> Iterator["Image"]:
    """The image with its header read and its size checked. Damage found here or by the caller is a DecodeError:
    on malformed files Pillow's plug-ins raise nearly anything."""
    from PIL import Image, UnidentifiedImageError

    name = _name(source)
    try:
        Image.init()
        file = os.fspath(source) if isinstance(source, str | os.PathLike) else io.BytesIO(source)
        with Image.open(file, formats=[f for f in FORMATS if f in Image.OPEN]) as image:
            _check_size(name, image, max_pixels)
            yield image
    except (DecodeError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise DecodeError(name, None, "not an image, or of a format that is not supported") from error
    except FileNotFoundError as error:
        raise DecodeError(name, None, "No such file or directory") from error
    except Exception as error:
        raise DecodeError(name, None, str(error) or type(error).__name__) from error


def _check_size(name: str, image: "Image", max_pixels: int) -> None:
    if max(image.size) > MAX_SIDE or image.width * image.height > max_pixels:
        limits = f"{MAX_SIDE} pixels a side and {max_pixels} pixels"
        raise DecodeError(name, None, f"the image is {image.width}x{image.height}, over the limits of {limits}")


def _name(source: ImageSource) -> str:
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return f"<{memoryview(source).nbytes} bytes>"
