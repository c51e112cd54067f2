"""Hand out frames as the patches that a vision transformer reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flashcodec.layouts.base import Frame, Interpolation, Layout, core_interpolation

if TYPE_CHECKING:
    from flashcodec import _core


@dataclass(frozen=True)
class PatchLayout(Layout):
    """Hand out rows that a ViT reads: frames resized to height x width and cut into patches.

    A group of `temporal_patch_size` frames gives (height / patch_size) * (width / patch_size) rows in the patch
    order of Qwen2-VL: merge blocks of merge_size x merge_size patches, row by row. A row is uint8, not
    normalised: [3, temporal_patch_size, patch_size, patch_size].

    Raises ValueError if height and width are no multiples of patch_size * merge_size.
    """

    height: int
    width: int
    patch_size: int = 14
    temporal_patch_size: int = 2
    merge_size: int = 2
    interpolation: Interpolation = "bicubic"

    def __post_init__(self) -> None:
        self.to_core()

    @property
    def grid(self) -> tuple[int, int]:
        """Return the rows and columns of patches in a frame."""
        return self.height // self.patch_size, self.width // self.patch_size

    @property
    def rows_per_group(self) -> int:
        """Return the patches of a group."""
        rows, columns = self.grid
        return rows * columns

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a patch."""
        return 3 * self.temporal_patch_size * self.patch_size**2

    @property
    def group_frames(self) -> int:
        return self.temporal_patch_size

    def group_shape(self, groups: int) -> tuple[int, ...]:
        return (groups * self.rows_per_group, self.row_bytes)

    def frames_of(self, group: npt.NDArray[np.uint8]) -> list[Frame]:
        size, merge = self.patch_size, self.merge_size
        rows, columns = self.grid
        patches = group.reshape(rows // merge, columns // merge, merge, merge, 3, self.group_frames, size, size)
        frames = patches.transpose(5, 0, 2, 6, 1, 3, 7, 4).reshape(self.group_frames, self.height, self.width, 3)
        return list(frames)

    def to_core(self) -> _core.Layout:
        from flashcodec import _core  # FFmpeg with it

        return _core.Layout(
            _core.LayoutKind.PATCHES,
            self.height,
            self.width,
            self.patch_size,
            self.temporal_patch_size,
            self.merge_size,
            core_interpolation(self.interpolation),
        )
