"""Hand out frames as RGB of 16 bits a channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flashcodec.layouts.base import Frame, Layout

if TYPE_CHECKING:
    from flashcodec import _core


@dataclass(frozen=True)
class DeepLayout(Layout):
    """Hand out RGB frames of 16 bits a channel, as bytes: [frames, height, width, 6], to be viewed as uint16.

    Values are libswscale's, 0 to 65535. Only cores write them, and pictures of other sizes are resized by libswscale.
    """

    height: int
    width: int

    def group_shape(self, groups: int) -> tuple[int, ...]:
        return (groups, self.height, self.width, 6)

    def frames_of(self, group: npt.NDArray[np.uint8]) -> list[Frame]:
        deep = group.reshape(self.group_shape(1)[1:]).view(np.uint16)
        return [(deep >> 8).astype(np.uint8)]

    def to_core(self) -> _core.Layout:
        from flashcodec import _core  # FFmpeg with it

        return _core.Layout(_core.LayoutKind.HWC16, self.height, self.width)
