"""Sizes and grids of tiles that vision-language models choose for a picture: those of transformers' processors."""

import math
from collections.abc import Iterable


def shortest_edge_size(height: int, width: int, edge: int) -> tuple[int, int]:
    """(height, width) with the shorter side `edge` and the same aspect ratio, the longer one rounded down (CLIP)."""
    if width <= height:
        return edge * height // width, edge
    return edge, edge * width // height


def fitted_size(height: int, width: int, target: tuple[int, int]) -> tuple[int, int]:
    """The largest (height, width) of the same aspect ratio within `target`, the looser side rounded up (anyres)."""
    target_height, target_width = target
    across, down = target_width / width, target_height / height
    if across < down:
        return min(math.ceil(height * across), target_height), target_width
    return target_height, min(math.ceil(width * down), target_width)


def tile_grid(height: int, width: int, tile: int, min_tiles: int = 1, max_tiles: int = 12) -> tuple[int, int]:
    """(rows, columns) of InternVL's tiles: of all grids of min_tiles to max_tiles tiles, the one whose aspect ratio is
    closest to the picture's. Of equally close ones a larger is taken as long as it has less than twice the picture's
    pixels.
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
    """The (height, width) of `resolutions` that keeps the most of a picture's pixels, of those the one that wastes the
    fewest (LLaVA's anyres).

    Raises ValueError if there are no resolutions.
    """

    def kept_and_wasted(resolution: tuple[int, int]) -> tuple[int, int]:
        scale = min(resolution[1] / width, resolution[0] / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, -(resolution[0] * resolution[1] - kept)

    return max(resolutions, key=kept_and_wasted)
