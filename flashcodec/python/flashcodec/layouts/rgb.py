"""Hand out frames as RGB pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from flashcodec.layouts.base import Frame, Interpolation, Layout, check_within, core_interpolation

if TYPE_CHECKING:
    from flashcodec import _core


Color = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""


@dataclass(frozen=True)
class RGBLayout(Layout):
    """Hand out RGB frames, uint8: [frames, 3, height, width] or [frames, height, width, 3].

    Args:
        height: pixels that frames are resized to; None keeps theirs.
        width: the same.
        order: whether channels come first.
        interpolation: how they are resized.
        crop: (height, width) of the part that is kept of the resized frame; only that part is computed.
        corner: (top, left), where the crop begins; by default it is taken from the middle (CLIP, LLaVA-1.5).
        part: (top, left, height, width) of the frame itself, which is all that is resized.
        square: the colour with which frames are padded to a square, themselves in its middle, before they are
            resized (LLaVA-1.5's training).

    Raises ValueError if the sizes do not fit each other.
    """

    height: int | None = None
    width: int | None = None
    order: Literal["NCHW", "NHWC"] = "NCHW"
    interpolation: Interpolation = "bicubic"
    crop: tuple[int, int] | None = None
    square: Color | None = None
    corner: tuple[int, int] | None = None
    part: tuple[int, int, int, int] | None = None

    def __post_init__(self) -> None:
        if self.order not in ("NCHW", "NHWC"):
            raise ValueError(f"Invalid dimension order ({self.order}). Supported values are NCHW, NHWC.")
        if (self.height is None) != (self.width is None):
            raise ValueError("give both height and width, or neither")
        core_interpolation(self.interpolation)
        _check_color(self.square)
        if self.height is not None and self.width is not None and self.crop is not None:
            check_within("crop", self.crop, (self.height, self.width))
            _check_corner(self._corner, self.crop, (self.height, self.width))
        if self.part is not None:
            _check_part(self.part, self.square)

    def sized(self, height: int, width: int) -> RGBLayout:
        """Return the same layout with the native size filled in."""
        if self.height is not None:
            return self
        if self.part is not None:
            height, width = self.part[2:]
        if self.square is not None:
            height = width = max(height, width)
        return replace(self, height=height, width=width)

    def group_shape(self, groups: int) -> tuple[int, ...]:
        height, width = self._picture
        return (groups, 3, height, width) if self.order == "NCHW" else (groups, height, width, 3)

    def frames_of(self, group: npt.NDArray[np.uint8]) -> list[Frame]:
        frame = group.reshape(self.group_shape(1)[1:])
        return [frame.transpose(1, 2, 0) if self.order == "NCHW" else frame]

    def to_core(self) -> _core.Layout:
        from flashcodec import _core  # FFmpeg with it

        kind = _core.LayoutKind.CHW if self.order == "NCHW" else _core.LayoutKind.HWC
        height, width = self.height or 0, self.width or 0
        fit = _core.Fit(
            height,
            width,
            top=-self._corner[0],
            left=-self._corner[1],
            color=self.square or (0, 0, 0),
            square=self.square is not None,
            part=_box(self.part),
        )
        return _core.Layout(kind, *self._picture, interpolation=core_interpolation(self.interpolation), fit=fit)

    @property
    def _corner(self) -> tuple[int, int]:
        if self.corner is not None:
            return self.corner
        height, width = self._picture
        return ((self.height or 0) - height) // 2, ((self.width or 0) - width) // 2

    @property
    def _picture(self) -> tuple[int, int]:
        return self.crop if self.crop is not None else (self.height or 0, self.width or 0)


def _check_corner(corner: tuple[int, int], crop: tuple[int, int], size: tuple[int, int]) -> None:
    """Raise ValueError unless a crop at this corner lies within the size."""
    ends = corner[0] + crop[0], corner[1] + crop[1]
    if min(corner) < 0 or ends[0] > size[0] or ends[1] > size[1]:
        raise ValueError(f"crop {crop} at {corner} does not lie within {size}")


def _check_part(part: tuple[int, int, int, int], square: Color | None) -> None:
    """Raise ValueError unless `part` has pixels, and is not to be padded."""
    top, left, height, width = part
    if min(top, left) < 0 or min(height, width) < 1:
        raise ValueError(f"part must be (top, left, height, width) of pixels in the frame, got {part}")
    if square is not None:
        raise ValueError("a part of the frame is not padded to a square: give part or square")


def _box(part: tuple[int, int, int, int] | None) -> tuple[int, int, int, int]:
    """Return (top, left, bottom, right) for the core."""
    if part is None:
        return (0, 0, 0, 0)
    top, left, height, width = part
    return (top, left, top + height, left + width)


def _check_color(color: Color | None) -> None:
    """Raise ValueError unless `color` is one, or None."""
    if color is not None and not (len(color) == 3 and all(0 <= part <= 255 for part in color)):
        raise ValueError(f"a colour is red, green and blue, 0 to 255 each, not {color}")
