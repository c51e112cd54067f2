"""Hand out frames as square tiles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from flashcodec.geometry import best_resolution, canvas_grid, canvas_size, fitted_size, tile_grid
from flashcodec.layouts.base import Frame, Interpolation, Layout, check_within, core_interpolation, join_parts

if TYPE_CHECKING:
    from flashcodec import _core


@dataclass(frozen=True)
class TileLayout(Layout):
    """Hand out frames resized to a grid of tiles, uint8: [frames, tiles, 3, tile, tile], tiles row by row.

    Args:
        rows: of the grid.
        columns: of the grid.
        tile: side of a tile in pixels.
        thumbnail: whether and where one more tile shows the whole frame.
        content: (height, width) that the frame is resized to, in the middle of a black grid; None fills the grid.
        corner: the content is in the upper left corner of the grid instead.
        interpolation: how frames are resized.

    Raises ValueError if the sizes do not fit each other.
    """

    rows: int
    columns: int
    tile: int
    thumbnail: Literal["first", "last"] | None = None
    content: tuple[int, int] | None = None
    interpolation: Interpolation = "bicubic"
    corner: bool = False

    def __post_init__(self) -> None:
        if self.thumbnail not in (None, "first", "last"):
            raise ValueError(f'thumbnail must be "first", "last" or None, not {self.thumbnail!r}')
        if self.content is not None:
            check_within("content", self.content, self._grid)
        self.to_core()

    @classmethod
    def internvl(cls, height: int, width: int, tile: int = 448, min_tiles: int = 1, max_tiles: int = 12) -> TileLayout:
        """Return InternVL's tiles of height x width: a grid of about that aspect ratio, the thumbnail last."""
        rows, columns = tile_grid(height, width, tile, min_tiles, max_tiles)
        return cls(rows, columns, tile, "last" if rows * columns > 1 else None)

    @classmethod
    def anyres(cls, height: int, width: int, resolutions: Iterable[tuple[int, int]], tile: int) -> TileLayout:
        """Return the tiles of LLaVA-NeXT and LLaVA-OneVision for pictures of height x width.

        They fill the best of the `resolutions`, which are (height, width) and multiples of the tile; the aspect ratio
        is kept, the thumbnail comes first. Raises ValueError if that resolution is no such multiple.
        """
        resolution = best_resolution(height, width, resolutions)
        if resolution[0] % tile or resolution[1] % tile:
            raise ValueError(f"resolution {resolution} is no multiple of the tile, {tile}")
        content = fitted_size(height, width, resolution)
        return cls(resolution[0] // tile, resolution[1] // tile, tile, "first", content)

    @classmethod
    def mllama(cls, height: int, width: int, tile: int = 560, max_tiles: int = 4) -> TileLayout:
        """Return Llama 3.2's tiles of height x width. They are in the upper left corner of a grid that suits them."""
        rows, columns = canvas_grid(height, width, tile, max_tiles)
        content = canvas_size(height, width, tile, (rows * tile, columns * tile))
        return cls(rows, columns, tile, content=content, interpolation="bilinear", corner=True)

    @property
    def tiles(self) -> int:
        """Return the tiles of a frame, with its thumbnail."""
        return self.rows * self.columns + (self.thumbnail is not None)

    def group_shape(self, groups: int) -> tuple[int, ...]:
        return (groups, self.tiles, 3, self.tile, self.tile)

    def frames_of(self, group: npt.NDArray[np.uint8]) -> list[Frame]:
        tiles = group.reshape(self.group_shape(1)[1:])
        first = 1 if self.thumbnail == "first" else 0
        whole = join_parts(tiles[first : first + self.rows * self.columns], self.rows, self.columns)
        (height, width), (top, left) = self._content
        return [whole[top : top + height, left : left + width]]

    def to_core(self) -> _core.Layout:
        from flashcodec import _core  # FFmpeg with it

        height, width = self._grid
        content, (top, left) = self._content
        thumbnails = {
            None: _core.Thumbnail.NONE,
            "first": _core.Thumbnail.FIRST,
            "last": _core.Thumbnail.LAST,
        }
        return _core.Layout(
            _core.LayoutKind.TILES,
            height,
            width,
            interpolation=core_interpolation(self.interpolation),
            fit=_core.Fit(*content, top=top, left=left),
            tile_size=self.tile,
            thumbnail=thumbnails[self.thumbnail],
        )

    @property
    def _grid(self) -> tuple[int, int]:
        return self.rows * self.tile, self.columns * self.tile

    @property
    def _content(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return height and width of the content, and its top and left in the grid."""
        grid, content = self._grid, self.content or self._grid
        if self.corner:
            return content, (0, 0)
        return content, ((grid[0] - content[0]) // 2, (grid[1] - content[1]) // 2)
