"""Compute sizes and grids of tiles as transformers' processors do. Vision-language models choose them for a picture."""

import math
from collections.abc import Iterable


def shortest_edge_size(height: int, width: int, edge: int) -> tuple[int, int]:
    """Return (height, width) with the shorter side `edge` and the same aspect ratio.

    The longer side is rounded down (CLIP).
    """
    if width <= height:
        return edge * height // width, edge
    return edge, edge * width // height


def fitted_size(height: int, width: int, target: tuple[int, int]) -> tuple[int, int]:
    """Return the largest (height, width) of this aspect ratio within `target`, the looser side rounded up (anyres)."""
    target_height, target_width = target
    across, down = target_width / width, target_height / height
    if across < down:
        return min(math.ceil(height * across), target_height), target_width
    return target_height, min(math.ceil(width * down), target_width)


def tile_grid(height: int, width: int, tile: int, min_tiles: int = 1, max_tiles: int = 12) -> tuple[int, int]:
    """Return (rows, columns) of InternVL's tiles, by the picture's aspect ratio.

    Of all grids of min_tiles to max_tiles tiles it is the one whose aspect ratio is closest to the picture's. Of
    equally close ones a larger is taken as long as it has less than twice the picture's pixels.
    """
    if not 1 <= min_tiles <= max_tiles:
        raise ValueError(f"tiles must be 1 <= min_tiles <= max_tiles, got {min_tiles} and {max_tiles}")
    grids = [
        (rows, columns)
        for columns in range(1, max_tiles + 1)
        for rows in range(1, max_tiles + 1)
        if min_tiles <= rows * columns <= max_tiles
    ]
    best, closest = (1, 1), float("inf")
    for rows, columns in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        distance = abs(width / height - columns / rows)
        large_enough = height * width > 0.5 * tile * tile * rows * columns
        if distance < closest or (distance == closest and large_enough):
            best, closest = (rows, columns), distance
    return best


def best_resolution(height: int, width: int, resolutions: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the (height, width) of `resolutions` that keeps the most of a picture's pixels.

    Of equally good ones it is the one that wastes the fewest (LLaVA's anyres). Raises ValueError if there are no
    resolutions.
    """

    def kept_and_wasted(resolution: tuple[int, int]) -> tuple[int, int]:
        scale = min(resolution[1] / width, resolution[0] / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, -(resolution[0] * resolution[1] - kept)

    return max(resolutions, key=kept_and_wasted)


def canvas_grids(max_tiles: int = 4) -> list[tuple[int, int]]:
    """List all (rows, columns) of up to max_tiles tiles, in Llama 3.2's order, which numbers them."""
    counts = range(1, max_tiles + 1)
    return [(rows, columns) for rows in counts for columns in counts if rows * columns <= max_tiles]


def canvas_grid(height: int, width: int, tile: int, max_tiles: int = 4) -> tuple[int, int]:
    """Return (rows, columns) of Llama 3.2's tiles.

    Of all grids of up to max_tiles tiles it is the one that needs the picture enlarged the least, or shrunk the least
    if it fits into none; of equally good ones that of the fewest tiles.
    """
    grids = canvas_grids(max_tiles)
    scales = [min(rows * tile / height, columns * tile / width) for rows, columns in grids]
    best = min((scale for scale in scales if scale >= 1), default=max(scales))
    equal = [grid for grid, scale in zip(grids, scales, strict=True) if scale == best]
    return min(equal, key=lambda grid: grid[0] * grid[1])


def canvas_size(height: int, width: int, tile: int, canvas: tuple[int, int]) -> tuple[int, int]:
    """Return a picture's (height, width) within Llama 3.2's `canvas`: it is enlarged to a tile's side at most."""
    target_height, target_width = (
        min(max(side, tile), most) for side, most in zip((height, width), canvas, strict=True)
    )
    across, down = target_width / width, target_height / height
    if across < down:
        return min(max(1, int(height * across)), target_height), target_width
    return target_height, min(max(1, int(width * down)), target_width)
