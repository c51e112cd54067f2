"""Frames to look at, from the layouts in which the encoder reads them."""

import numpy as np

from unifiedserve.models.media import Layout, PatchGrid, Picture, Tiles, Views


def frames_of(layout: Layout, data: np.ndarray) -> list[np.ndarray]:
    """The frames, each uint8 [height, width, 3] in RGB, of a whole group of units, uint8 [bytes].

    They are as the model sees them: resized, cropped, padded.
    """
    match layout:
        case PatchGrid() as grid:
            return _frames_of_patches(grid, data)
        case Picture() as picture:
            height, width = picture.crop or (picture.height, picture.width)
            return [data.reshape(3, height, width).transpose(1, 2, 0)]
        case Tiles() as tiles:
            return [_picture_of_tiles(tiles, data)]
        case Views() as views:
            return [_largest_view(views, data)]


def _frames_of_patches(grid: PatchGrid, data: np.ndarray) -> list[np.ndarray]:
    size, merge, frames = grid.patch_size, grid.merge_size, grid.temporal_patch_size
    cells = grid.height // (size * merge), grid.width // (size * merge)
    patches = data.reshape(*cells, merge, merge, 3, frames, size, size)
    return list(patches.transpose(5, 0, 2, 6, 1, 3, 7, 4).reshape(frames, grid.height, grid.width, 3))


def _picture_of_tiles(tiles: Tiles, data: np.ndarray) -> np.ndarray:
    parts = data.reshape(tiles.count, 3, tiles.tile, tiles.tile)
    start = 1 if tiles.thumbnail == "first" else 0
    whole = _joined(parts[start : start + tiles.rows * tiles.columns], tiles.rows, tiles.columns)
    if tiles.content is None:
        return whole
    height, width = tiles.content
    top, left = (0, 0) if tiles.corner else ((whole.shape[0] - height) // 2, (whole.shape[1] - width) // 2)
    return whole[top : top + height, left : left + width]


def _largest_view(views: Views, data: np.ndarray) -> np.ndarray:
    sizes = [view.sizes[-1] if view.sizes else (views.height, views.width) for view in views.views]
    pixels = [height * width for height, width in sizes]
    largest = pixels.index(max(pixels))
    view, (height, width) = views.views[largest], sizes[largest]
    start = 3 * sum(pixels[:largest])
    parts = data[start : start + 3 * height * width]
    shape = (view.count, 3, height // view.rows, width // view.columns)
    return _joined(parts.reshape(shape), view.rows, view.columns)


def _joined(parts: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The picture [height, width, 3] of a grid of parts [rows * columns, 3, height, width]."""
    _, channels, height, width = parts.shape
    grid = parts.reshape(rows, columns, channels, height, width)
    return grid.transpose(0, 3, 1, 4, 2).reshape(rows * height, columns * width, channels)
