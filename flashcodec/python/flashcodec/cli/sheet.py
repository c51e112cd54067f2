"""Draw a contact sheet: pictures in rows, each with its time."""

import math

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

_GAP = 4  # pixels between cells
_BACKGROUND = (24, 24, 24)
_ASPECT_RATIO = 1.6


class Sheet:
    """Hold cells of `size` (width, height) for `count` pictures, empty at first."""

    def __init__(self, count: int, size: tuple[int, int], columns: int | None = None) -> None:
        self.columns, self.rows, shape = grid(count, size, columns)
        self._size = size
        self._image = Image.new("RGB", shape, _BACKGROUND)

    def put(self, place: int, pixels: npt.NDArray[np.uint8] | None, time: str) -> None:
        """Put in the picture number `place`, uint8 [height, width, 3]. None stands for one that is missing."""
        cell = Image.new("RGB", self._size, "maroon") if pixels is None else Image.fromarray(pixels)
        _write(cell, time)
        row, column = divmod(place, self.columns)
        self._image.paste(cell, (_GAP + column * (self._size[0] + _GAP), _GAP + row * (self._size[1] + _GAP)))

    def save(self, path: str) -> None:
        self._image.save(path)


def grid(count: int, size: tuple[int, int], columns: int | None) -> tuple[int, int, tuple[int, int]]:
    """Return columns, rows, and (width, height) of the whole. By default it comes near to 16:10."""
    wanted = columns or max(1, round(math.sqrt(count * _ASPECT_RATIO * size[1] / size[0])))
    columns = min(wanted, count)
    rows = -(-count // columns)
    return columns, rows, (columns * (size[0] + _GAP) + _GAP, rows * (size[1] + _GAP) + _GAP)


def _write(cell: Image.Image, text: str) -> None:
    """Write into the lower left corner."""
    size = max(8, min(cell.height // 9, cell.width // 7, 28))
    place = (size // 3, cell.height - size // 3)
    font = ImageFont.load_default(size)
    ImageDraw.Draw(cell).text(place, text, "white", font, "ls", stroke_width=max(1, size // 8), stroke_fill="black")
