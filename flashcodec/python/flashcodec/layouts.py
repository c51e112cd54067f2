"""In what form decoded frames are handed out."""

from dataclasses import dataclass
from typing import Literal

from flashcodec import _core


@dataclass(frozen=True)
class PatchLayout:
    """Frames resized to height x width (antialiased bicubic) and cut into the rows that a ViT reads.

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

    def __post_init__(self) -> None:
        self.to_core()

    @property
    def rows_per_group(self) -> int:
        return (self.height // self.patch_size) * (self.width // self.patch_size)

    @property
    def row_bytes(self) -> int:
        return 3 * self.temporal_patch_size * self.patch_size**2

    @property
    def group_frames(self) -> int:
        return self.temporal_patch_size

    def group_shape(self, groups: int) -> tuple[int, ...]:
        return (groups * self.rows_per_group, self.row_bytes)

    def to_core(self) -> _core.Layout:
        return _core.Layout(
            _core.LayoutKind.PATCHES,
            self.height,
            self.width,
            self.patch_size,
            self.temporal_patch_size,
            self.merge_size,
        )


@dataclass(frozen=True)
class RGBLayout:
    """RGB frames, uint8: [frames, 3, height, width] or [frames, height, width, 3]; resized (antialiased bicubic)
    unless height and width are None."""

    height: int | None = None
    width: int | None = None
    order: Literal["NCHW", "NHWC"] = "NCHW"

    def __post_init__(self) -> None:
        if self.order not in ("NCHW", "NHWC"):
            raise ValueError(f"Invalid dimension order ({self.order}). Supported values are NCHW, NHWC.")
        if (self.height is None) != (self.width is None):
            raise ValueError("give both height and width, or neither")

    @property
    def group_frames(self) -> int:
        return 1

    def sized(self, height: int, width: int) -> "RGBLayout":
        """The same with the native size filled in."""
        return self if self.height is not None else RGBLayout(height, width, self.order)

    def group_shape(self, groups: int) -> tuple[int, ...]:
        assert self.height is not None
        assert self.width is not None
        picture = (3, self.height, self.width) if self.order == "NCHW" else (self.height, self.width, 3)
        return (groups, *picture)

    def to_core(self) -> _core.Layout:
        kind = _core.LayoutKind.CHW if self.order == "NCHW" else _core.LayoutKind.HWC
        return _core.Layout(kind, self.height or 0, self.width or 0)


Layout = PatchLayout | RGBLayout
