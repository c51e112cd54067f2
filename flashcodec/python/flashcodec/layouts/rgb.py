"""Frames as RGB pixels."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from flashcodec import _core
from flashcodec.layouts.base import Frame, Interpolation, Layout, check_within, core_interpolation

Color = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""


@dataclass(frozen=True)
class RGBLayout(Layout):
    """RGB frames, uint8: [frames, 3, height, width] or [frames, height, width, 3].

    Args:
        height, width: what frames are resized to; None keeps their size.
        order: whether channels come first.
        interpolation: how they are resized.
        crop: (height, width) of the part that is kept, from the middle of the resized frame (CLIP, LLaVA-1.5); only
            that part is computed.
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

    def __post_init__(self) -> None:
        if self.order not in ("NCHW", "NHWC"):
            raise ValueError(f"Invalid dimension order ({self.order}). Supported values are NCHW, NHWC.")
        if (self.height is None) != (self.width is None):
            raise ValueError("give both height and width, or neither")
        core_interpolation(self.interpolation)
        _check_color(self.square)
        if self.height is not None and self.width is not None and self.crop is not None:
            check_within("crop", self.crop, (self.height, self.width))

    def sized(self, height: int, width: int) -> "RGBLayout":
        """Return the same layout with the native size filled in."""
        if self.height is not None:
            return self
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
        kind = _core.LayoutKind.CHW if self.order == "NCHW" else _core.LayoutKind.HWC
        height, width = self.height or 0, self.width or 0
        fit = _core.Fit(
            height,
            width,
            top=-((height - self._picture[0]) // 2),
            left=-((width - self._picture[1]) // 2),
            color=self.square or (0, 0, 0),
            square=self.square is not None,
        )
        return _core.Layout(kind, *self._picture, interpolation=core_interpolation(self.interpolation), fit=fit)

    @property
    def _picture(self) -> tuple[int, int]:
        return self.crop if self.crop is not None else (self.height or 0, self.width or 0)


def _check_color(color: Color | None) -> None:
    """Raise ValueError unless `color` is one, or None."""
    if color is not None and not (len(color) == 3 and all(0 <= part <= 255 for part in color)):
        raise ValueError(f"a colour is red, green and blue, 0 to 255 each, not {color}")
