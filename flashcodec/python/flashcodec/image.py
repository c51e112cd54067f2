"""Decode still images by Pillow. They are resized and cut into patches as the frames of a video are.

Needs Pillow (`pip install pillow`), which is imported when first used. JPEGs take less time with
simplejpeg.
"""

import ctypes
import io
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from flashcodec import jpeg
from flashcodec.counts import check_parts
from flashcodec.errors import DamagedError, DecodeError, LimitError, UnsupportedError
from flashcodec.heads import check_cost, check_icon, orientation
from flashcodec.layouts import Layout
from flashcodec.limits import MAX_PIXELS
from flashcodec.sources import BYTES, PATHS, BytesSource, PathSource, bytes_of, name_of, open_binary

if TYPE_CHECKING:
    from PIL.Image import Image

    from flashcodec import _core

ImageSource = PathSource | BytesSource


MAX_SIDE = 32768
"""Pixels; images wider or higher are refused."""

Background = tuple[int, int, int] | None
"""RGB, 0 to 255, that is seen through transparent pixels; None: the colours that are stored there, which no viewer
shows."""

WHITE: Background = (255, 255, 255)

# Formats that Pillow decodes by itself, without running other programs.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "ICO", "AVIF")

# Quarter turns clockwise, after mirroring left to right, that make a picture of each orientation upright.
_GPU_TURNS = defaultdict(
    lambda: (0, False),
    {2: (0, True), 3: (2, False), 4: (2, True), 5: (3, True), 6: (1, False), 7: (1, True), 8: (3, False)},
)

# Major brands of HEIF files that hold HEVC (ISO/IEC 23008-12, B.4.1 and 10.2).
_HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")

# Of AVIF, a picture or several (AV1 Image File Format, 6).
_AVIF_BRANDS = (b"avif", b"avis")

_HEAD_BYTES = 512  # as many as tell what a file is

_LEAST_BYTES = 12  # with fewer, kinds of files cannot be told apart

_EXIF_TRANSPOSED = (5, 6, 7, 8)


def image_size(source: ImageSource, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return (width, height) in pixels of an upright image, from its header. Nothing is decoded.

    Raises DecodeError if it is no image, larger than `max_pixels` or `MAX_SIDE`, or would take too long to decode.
    """
    with _opened(source, max_pixels) as (image, file):
        transposed = orientation(image, file) in _EXIF_TRANSPOSED
        return (image.height, image.width) if transposed else (image.width, image.height)


def decode_image(
    source: ImageSource, max_pixels: int = MAX_PIXELS, background: Background = WHITE
) -> npt.NDArray[np.uint8]:
    """Decode an image to RGB, uint8 [height, width, 3], turned upright by its EXIF orientation.

    Transparent pixels show the `background`. Of 16 bits the upper 8 are kept, of an animation the first picture.

    Raises DecodeError if it cannot be decoded, or is larger than `max_pixels` or `MAX_SIDE`.
    """
    pixels = _decode(source, max_pixels, background, kept=False)
    return pixels if pixels.flags.writeable else pixels.copy()


def decode_images(
    sources: Sequence[ImageSource],
    num_threads: int = 0,
    max_pixels: int = MAX_PIXELS,
    background: Background = WHITE,
) -> list[npt.NDArray[np.uint8]]:
    """Decode images at once on `num_threads` threads (0: one for each processor). Each is decoded as by `decode_image`.

    Raises DecodeError for the first of them that cannot be decoded, ValueError for a negative number of threads.
    """
    if num_threads < 0:
        raise ValueError(f"num_threads must not be negative, got {num_threads}")
    threads = min(num_threads or os.cpu_count() or 1, len(sources))
    if threads <= 1:
        return [decode_image(source, max_pixels, background) for source in sources]
    with ThreadPoolExecutor(threads, "flashcodec-image") as pool:
        return list(pool.map(lambda source: decode_image(source, max_pixels, background), sources))


def image_in_layout(
    source: ImageSource, layout: Layout, max_pixels: int = MAX_PIXELS, background: Background = WHITE
) -> npt.NDArray[np.uint8]:
    """Decode an image into the layout of a video's frames, as one group: uint8 of the layout's `group_shape(1)`.

    Raises DecodeError as `decode_image` does.
    """
    return layout.group_of(_decode(source, max_pixels, background, kept=True)[None])


#: where CUDA's toolkit lies if the dynamic linker does not know it
_TOOLKITS = ("/usr/local/cuda", "/usr/local/nvidia", "/opt/cuda")


class GpuImages:
    """Decode JPEGs by a GPU's hardware for them, into its memory.

    Any number of threads may use it. Threads' requests while the hardware is at work are decoded together afterwards.

    Its pixels are not quite Pillow's: the transform is another, and so is what is made of shared chroma.

    Raises RuntimeError if the GPU has no such hardware, or it cannot be used.
    """

    def __init__(self, gpu: int = 0) -> None:
        from flashcodec import _core  # FFmpeg with it

        _load_nvjpeg()
        self._decoder = _core.JpegDecoder(gpu)

    def image_in_layout(
        self, source: ImageSource, layout: Layout, max_pixels: int = MAX_PIXELS
    ) -> "_core.GpuArray | None":
        """Decode an image as `image_in_layout` does; None if it is one for Pillow.

        Raises DecodeError as `decode_image` does for what its header tells, RuntimeError if the GPU fails.
        """
        with _opened(source, max_pixels) as (image, file):
            if image.format != "JPEG" or image.mode != "RGB":
                return None
            turn = _GPU_TURNS[orientation(image, file)]
            size = (image.width, image.height) if turn[0] % 2 else (image.height, image.width)
            data = bytes_of(source) if isinstance(source, BYTES) else jpeg.whole(file)
        sized = layout.sized(*size)
        return self._decoder.decode(data, *turn, sized.to_core(), list(sized.group_shape(1)))


def _load_nvjpeg() -> None:
    """Load nvJPEG from where pip or the toolkit puts it: the core finds what is loaded by its name."""
    of_pip = chain.from_iterable(Path(folder).glob("nvidia/*/lib/libnvjpeg.so.1[23]") for folder in sys.path)
    of_toolkit = chain.from_iterable(Path(folder).glob("lib64/libnvjpeg.so.1[23]") for folder in _TOOLKITS)
    for library in chain(of_pip, of_toolkit):
        with suppress(OSError):  # the core says what is wrong
            ctypes.CDLL(str(library))


def _decode(source: ImageSource, max_pixels: int, background: Background, *, kept: bool) -> npt.NDArray[np.uint8]:
    """Return RGB that may be read-only; `kept`: in memory that the thread uses again."""
    from PIL import ImageOps

    with _opened(source, max_pixels) as (image, file):
        if (pixels := jpeg.decoded(image, bytes_of(source) if isinstance(source, BYTES) else file, kept)) is not None:
            return pixels
        file_format = image.format  # forgotten by a transposition
        orientation(image, file)
        ImageOps.exif_transpose(image, in_place=True)
        return np.asarray(_to_rgb(image, file_format, background))


def _to_rgb(image: "Image", file_format: str | None, background: Background) -> "Image":
    """Convert as Pillow does, with two exceptions. Transparency is dropped, and 16-bit grey is not clipped to 255."""
    from PIL import Image

    if background is not None and image.has_transparency_data and not image.mode.startswith("I"):
        shown = image.convert("RGBA")
        opaque = Image.new("RGB", image.size, background)
        opaque.paste(shown, mask=shown.getchannel("A"))
        return opaque
    if image.mode.startswith("I;16") or (image.mode == "I" and file_format in ("PNG", "PPM")):
        grey = np.asarray(image, np.uint16) >> 8
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image  # to convert it would be to copy it
    return image.convert("RGB")


@contextmanager
def _opened(source: ImageSource, max_pixels: int) -> Iterator[tuple["Image", BinaryIO]]:
    """Return the image with its header read and its size checked, and its file.

    Damage found here or by the caller is a DecodeError: on malformed files Pillow's plug-ins raise nearly anything.
    """
    from PIL import Image, UnidentifiedImageError

    name, opened = name_of(source), None
    data: Any = source  # BytesIO copies no bytes, but it would copy a view of them
    with open_binary(source) if isinstance(source, PATHS) else io.BytesIO(data) as file:
        try:
            Image.init()
            check_icon(name, file)
            check_parts(name, file)
            with Image.open(file, formats=[f for f in FORMATS if f in Image.OPEN]) as image:
                opened = image.format
                _check_size(name, image, max_pixels)
                check_cost(name, image, file)
                yield image, file
        except (DecodeError, MemoryError):
            raise
        except UnidentifiedImageError as error:
            raise _unreadable(name, file, "") from error
        except Image.DecompressionBombError as error:
            raise LimitError(name, None, str(error)) from error
        except Exception as error:
            detail = f": {str(error) or type(error).__name__}"
            if opened is None:
                raise _unreadable(name, file, detail) from error
            raise DamagedError(name, None, f"the {opened} image is damaged or cut off{detail}") from error


def _unreadable(name: str, file: BinaryIO, detail: str) -> DecodeError:
    """Return the error for a file of which Pillow cannot read the head."""
    from PIL import Image

    from flashcodec import _core  # FFmpeg with it

    file.seek(0)
    head = file.read(_HEAD_BYTES)
    kind = _core.file_kind(head)
    if head[4:8] == b"ftyp" and head[8:12] in _AVIF_BRANDS and "AVIF" not in Image.OPEN:
        return UnsupportedError(name, None, "this Pillow was built without AVIF")
    if len(head) >= _LEAST_BYTES and kind is not None and kind.endswith(" image"):  # advice follows others' names
        return DamagedError(name, None, f"{kind} that is damaged, cut off, or of a variant that is not read{detail}")
    return UnsupportedError(name, None, _no_image(head, kind))


def _no_image(head: bytes, kind: str | None) -> str:
    """Say why these first bytes are no image that is decoded here. Their kind may be known."""
    if len(head) < _LEAST_BYTES:
        return f"not an image, or cut off: the source has {len(head)} bytes"
    if head[4:8] == b"ftyp" and head[8:12] in _HEIC_BRANDS:
        return "HEIC images are not supported: convert it to JPEG or AVIF"
    if kind is not None:
        return f"not supported: it is {kind}"
    if head[4:8] == b"ftyp":
        return "not an image but an MP4 or MOV file: flashcodec.VideoDecoder decodes videos"
    return "not an image, or of a format that is not supported"


def _check_size(name: str, image: "Image", max_pixels: int) -> None:
    if max(image.size) > MAX_SIDE or image.width * image.height > max_pixels:
        limits = f"{MAX_SIDE} pixels a side and {max_pixels} pixels"
        raise LimitError(name, None, f"the image is {image.width}x{image.height}, over the limits of {limits}")
