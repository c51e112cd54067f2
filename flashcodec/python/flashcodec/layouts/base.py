"""Define what all layouts have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from flashcodec import _core


Interpolation = Literal["bicubic", "bilinear", "area"]
"""How frames are resized, always antialiased. "bicubic" and "bilinear" equal torch.nn.functional.interpolate(uint8,
antialias=True) on CPU; "area", the mean of the pixels that an output pixel covers, is within 1 of Pillow's BOX."""

Frame = npt.NDArray[np.uint8]
"""A frame to look at: uint8 [height, width, 3] in RGB."""


class Layout(ABC):
    """Hand decoded frames out in a form: groups of `group_frames` frames, each an array of uint8."""

    @property
    def group_frames(self) -> int:
        """Return the number of frames in a group."""
        return 1

    def sized(self, height: int, width: int) -> Layout:
        """Return the layout for frames of height x width, if it keeps their own size."""
        return self

    @abstractmethod
    def group_shape(self, groups: int) -> tuple[int, ...]:
        """Return the shape of so many groups in one array."""

    @abstractmethod
    def frames_of(self, group: npt.NDArray[np.uint8]) -> list[Frame]:
        """Return the frames of one group, as the layout shows them: resized, cropped, padded.

        `group` has the elements of `group_shape(1)`, in any shape; the frames may be views of it.
        """

    def group_of(self, rgb: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Lay decoded pictures out, uint8 [frames, height, width, 3], as one group; the last of them fills it up.

        Return uint8 of the layout's `group_shape(1)`. Raises ValueError if they are more than a group has frames.
        """
        from flashcodec import _core  # FFmpeg with it

        layout = self.sized(*rgb.shape[1:3])
        return _core.lay_out(np.ascontiguousarray(rgb), layout.to_core()).reshape(layout.group_shape(1))

    @abstractmethod
    def to_core(self) -> _core.Layout:
        """Return the C++ core's description of the layout. Raises ValueError if sizes do not fit each other."""


def core_interpolation(name: str) -> _core.Interpolation:
    """Return the C++ core's name for an interpolation. Raises ValueError for an unknown one."""
    from flashcodec import _core

    if name not in get_args(Interpolation):
        raise ValueError(f"interpolation must be one of {', '.join(get_args(Interpolation))}, not {name!r}")
    found: _core.Interpolation = getattr(_core.Interpolation, name.upper())
    return found


def check_within(name: str, part: tuple[int, int], whole: tuple[int, int]) -> None:
    """Raise ValueError unless `part` (height, width) is positive and not larger than `whole`."""
    if not (0 < part[0] <= whole[0] and 0 < part[1] <= whole[1]):
        raise ValueError(f"{name} {part} does not lie within {whole}")


def join_parts(parts: npt.NDArray[np.uint8], rows: int, columns: int) -> Frame:
    """Return the frame that was cut into a grid of parts.

    The parts are uint8 [rows * columns, 3, height, width], row by row.
    """
    _, channels, height, width = parts.shape
    grid = parts.reshape(rows, columns, channels, height, width)
    return grid.transpose(0, 3, 1, 4, 2).reshape(rows * height, columns * width, channels)
