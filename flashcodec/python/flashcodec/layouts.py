"""In what form decoded frames are handed out."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from flashcodec import _core
from flashcodec.geometry import best_resolution, canvas_grid, canvas_size, fitted_size, tile_grid

Interpolation = Literal["bicubic", "bilinear", "area"]
"""How frames are resized, always antialiased. "bicubic" and "bilinear" equal torch.nn.functional.interpolate(uint8,
antialias=True) on CPU; "area", the mean of the pixels that an output pixel covers, is within 1 of Pillow's BOX."""

Color = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""

_INTERPOLATIONS = {
    "bicubic": _core.Interpolation.BICUBIC,
    "bilinear": _core.Interpolation.BILINEAR,
    "area": _core.Interpolation.AREA,
}


@dataclass(frozen=True)
class PatchLayout:
    """Frames resized to height x width and cut into the rows that a ViT reads.

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
            _interpolation(self.interpolation),
        )


@dataclass(frozen=True)
class RGBLayout:
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
        _interpolation(self.interpolation)
        _check_color(self.square)
        if self.height is not None and self.width is not None and self.crop is not None:
            _check_within("crop", self.crop, (self.height, self.width))

    @property
    def group_frames(self) -> int:
        return 1

    def sized(self, height: int, width: int) -> "RGBLayout":
        """The same with the native size filled in."""
        if self.height is not None:
            return self
        if self.square is not None:
            height = width = max(height, width)
        return replace(self, height=height, width=width)

    def group_shape(self, groups: int) -> tuple[int, ...]:
        height, width = self._picture
        return (groups, 3, height, width) if self.order == "NCHW" else (groups, height, width, 3)

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
        return _core.Layout(kind, *self._picture, interpolation=_interpolation(self.interpolation), fit=fit)

    @property
    def _picture(self) -> tuple[int, int]:
        return self.crop if self.crop is not None else (self.height or 0, self.width or 0)


@dataclass(frozen=True)
class TileLayout:
    """Frames resized to a grid of tiles, uint8: [frames, tiles, 3, tile, tile], tiles row by row.

    Args:
        rows, columns: the grid.
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
            _check_within("content", self.content, self._grid)
        self.to_core()

    @classmethod
    def internvl(
        cls, height: int, width: int, tile: int = 448, min_tiles: int = 1, max_tiles: int = 12
    ) -> "TileLayout":
        """InternVL's tiles of pictures of height x width: a grid of about their aspect ratio, the thumbnail last."""
        rows, columns = tile_grid(height, width, tile, min_tiles, max_tiles)
        return cls(rows, columns, tile, "last" if rows * columns > 1 else None)

    @classmethod
    def anyres(cls, height: int, width: int, resolutions: Iterable[tuple[int, int]], tile: int) -> "TileLayout":
        """Tiles of LLaVA-NeXT and LLaVA-OneVision for pictures of height x width: the best of the `resolutions`, which
        are (height, width) and multiples of the tile; the aspect ratio is kept, the thumbnail comes first."""
        resolution = best_resolution(height, width, resolutions)
        if resolution[0] % tile or resolution[1] % tile:
            raise ValueError(f"resolution {resolution} is no multiple of the tile, {tile}")
        content = fitted_size(height, width, resolution)
        return cls(resolution[0] // tile, resolution[1] // tile, tile, "first", content)

    @classmethod
    def mllama(cls, height: int, width: int, tile: int = 560, max_tiles: int = 4) -> "TileLayout":
        """Llama 3.2's tiles of pictures of height x width, in the upper left corner of a grid that suits them."""
        rows, columns = canvas_grid(height, width, tile, max_tiles)
        content = canvas_size(height, width, tile, (rows * tile, columns * tile))
        return cls(rows, columns, tile, content=content, interpolation="bilinear", corner=True)

    @property
    def tiles(self) -> int:
        """Tiles of a frame, with its thumbnail."""
        return self.rows * self.columns + (self.thumbnail is not None)

    @property
    def group_frames(self) -> int:
        return 1

    def group_shape(self, groups: int) -> tuple[int, ...]:
        return (groups, self.tiles, 3, self.tile, self.tile)

    def to_core(self) -> _core.Layout:
        height, width = self._grid
        content = self.content or self._grid
        top, left = (0, 0) if self.corner else ((height - content[0]) // 2, (width - content[1]) // 2)
        thumbnails = {
            None: _core.Thumbnail.NONE,
            "first": _core.Thumbnail.FIRST,
            "last": _core.Thumbnail.LAST,
        }
        return _core.Layout(
            _core.LayoutKind.TILES,
            height,
            width,
            interpolation=_interpolation(self.interpolation),
            fit=_core.Fit(*content, top=top, left=left),
            tile_size=self.tile,
            thumbnail=thumbnails[self.thumbnail],
        )

    @property
    def _grid(self) -> tuple[int, int]:
        return self.rows * self.tile, self.columns * self.tile


Layout = PatchLayout | RGBLayout | TileLayout


def _interpolation(name: str) -> _core.Interpolation:
    if name not in _INTERPOLATIONS:
        raise ValueError(f"interpolation must be one of {', '.join(_INTERPOLATIONS)}, not {name!r}")
    return _INTERPOLATIONS[name]


def _check_color(color: Color | None) -> None:
    if color is not None and not (len(color) == 3 and all(0 <= part <= 255 for part in color)):
        raise ValueError(f"a colour is red, green and blue, 0 to 255 each, not {color}")


def _check_within(name: str, part: tuple[int, int], whole: tuple[int, int]) -> None:
    if not (0 < part[0] <= whole[0] and 0 < part[1] <= whole[1]):
        raise ValueError(f"{name} {part} does not lie within {whole}")
