"""Define layouts of decoded frames that plans carry: FlashCodec's own, and `Views`, which it cannot make."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from flashcodec.layouts import Frame, Layout, PatchLayout, RGBLayout, TileLayout, join_parts

if TYPE_CHECKING:
    import flashcodec._core as codec_core

Filter = Literal["lanczos", "bicubic", "bilinear"]


class View(msgspec.Struct, frozen=True):
    """Resize a frame to each of `sizes` (height, width) in turn. Then cut it into a grid of equal parts, row by row."""

    sizes: tuple[tuple[int, int], ...]
    rows: int = 1
    columns: int = 1

    @property
    def count(self) -> int:
        """Return the number of parts."""
        return self.rows * self.columns


@dataclass(frozen=True)
class Views(Layout):
    """Show frames of `height` × `width` (their own size) in several ways.

    FlashCodec hands them out as `native` does, and the vision stage cuts them. The patch buffer holds the parts of all
    views one after another, each [3, part height, part width].
    """

    height: int
    width: int
    views: tuple[View, ...]
    interpolation: Filter = "bicubic"

    @property
    def count(self) -> int:
        """Return the number of parts of all views."""
        return sum(view.count for view in self.views)

    @property
    def native(self) -> RGBLayout:
        """Return the layout of the frames before they are cut."""
        return RGBLayout(self.height, self.width)

    def group_shape(self, groups: int) -> tuple[int, ...]:
        return self.native.group_shape(groups)

    def to_core(self) -> codec_core.Layout:
        return self.native.to_core()

    def frames_of(self, group: np.ndarray) -> list[Frame]:
        """Return the frame as its largest view shows it; `group` are the parts of all views, uint8 [bytes]."""
        sizes = [view.sizes[-1] if view.sizes else (self.height, self.width) for view in self.views]
        pixels = [height * width for height, width in sizes]
        largest = pixels.index(max(pixels))
        view, (height, width) = self.views[largest], sizes[largest]
        start = 3 * sum(pixels[:largest])
        parts = group[start : start + 3 * height * width]
        shape = (view.count, 3, height // view.rows, width // view.columns)
        return [join_parts(parts.reshape(shape), view.rows, view.columns)]


# No two layouts have the same fields, all of which are encoded: so they tell the kinds apart.
_KINDS = {frozenset(field.name for field in fields(kind)): kind for kind in (PatchLayout, RGBLayout, TileLayout, Views)}


def decode_layout(_: type, value: dict[str, Any]) -> Layout:
    """Make a layout from its encoded fields: the hook of decoders whose messages carry one.

    Raises KeyError for fields that are no layout's, msgspec.ValidationError or ValueError for their contents.
    """
    return msgspec.convert(value, _KINDS[frozenset(value)])
