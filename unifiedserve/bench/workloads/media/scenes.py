"""Draw camera-like and screen-like pictures by numpy, faster than an encoder takes them.

A camera scene is a still of occluding, textured leaves (the dead-leaves model, whose statistics are those of
photographs: Lee, Mumford & Huang, 2001) over which the view pans in half pixels, a few things that cross it, and grain
that is new in each frame. All of it is drawn once a scene; a frame is a crop and an addition. A screen is lines of
glyphs that stand still, are typed or scroll.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Plane = npt.NDArray[np.uint8]
Planes = tuple[Plane, Plane, Plane]  # luma and two chroma of half its size (4:2:0)

MARGIN = 0.3  # how much larger than the view a still is, as a share of the view
GRAIN = 2.2  # standard deviation of the luma's grain in steps of 255
BLACK, WHITE = 32, 220  # leaves room for the grain, so that no addition wraps around


@dataclass(frozen=True)
class Still:
    """Hold a picture larger than the view, in four versions half a pixel apart: phases[2 * down + right]."""

    phases: tuple[Planes, ...]


def dead_leaves(height: int, width: int, rng: np.random.Generator) -> list[npt.NDArray[np.float32]]:
    """Draw three planes float32 [height, width] of discs, later ones on top. Radii are distributed as 1 / r^3."""
    texture = roughness(height, width, rng)
    planes = [np.full((height, width), 118, np.float32) for _ in range(3)]
    smallest, largest = height / 120, height / 2
    uniform = rng.random(2000)
    radii = 1 / np.sqrt(uniform / smallest**2 + (1 - uniform) / largest**2)
    for radius in sorted(radii, reverse=True):
        row, column = rng.uniform(0, height), rng.uniform(0, width)
        top, left = max(0, int(row - radius)), max(0, int(column - radius))
        box = (slice(top, int(row + radius) + 1), slice(left, int(column + radius) + 1))
        rows, columns = np.ogrid[top : min(height, box[0].stop), left : min(width, box[1].stop)]
        inside = (rows - row) ** 2 + (columns - column) ** 2 < radius**2
        shade = rng.uniform(-0.3, 0.3) * (rows - row) + rng.uniform(-0.3, 0.3) * (columns - column)
        leaf = rng.uniform(50, 200) + shade * 100 / radius + texture[box] * rng.choice([1, 3, 7])
        for plane, value in zip(planes, (leaf, *rng.normal(128, 12, 2)), strict=True):
            np.copyto(plane[box], value, where=inside)
    return planes


def roughness(height: int, width: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Draw noise of four octaves [height, width], standard deviation about 2: bark, grass, cloth."""
    octaves = (
        np.kron(rng.normal(0, 1, (height // cell + 1, width // cell + 1)), np.ones((cell, cell)))[:height, :width]
        for cell in (2, 4, 8, 16)
    )
    return np.asarray(sum(octaves), np.float32)


def halved(plane: npt.NDArray[np.float32], down: int, right: int) -> npt.NDArray[np.float32]:
    """Halve a plane; its pixels are the means of 2x2 that begin at (down, right)."""
    rows, columns = (plane.shape[0] - 2) // 2 * 2, (plane.shape[1] - 2) // 2 * 2
    moved = plane[down : down + rows, right : right + columns]
    return (moved[::2, ::2] + moved[1::2, ::2] + moved[::2, 1::2] + moved[1::2, 1::2]) * np.float32(0.25)


def draw_still(height: int, width: int, rng: np.random.Generator) -> Still:
    """Draw a still for views of `height` x `width` pixels."""
    luma, *chroma = dead_leaves(int(height * (1 + MARGIN)) * 2 + 4, int(width * (1 + MARGIN)) * 2 + 4, rng)
    phases = []
    for down, right in itertools.product((0, 1), (0, 1)):
        y = halved(luma, down, right)
        u, v = (halved(halved(plane, down, right), 0, 0) for plane in chroma)
        phases.append(tuple(np.clip(plane, BLACK, WHITE).astype(np.uint8) for plane in (y, u, v)))
    return Still(tuple(phases))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Walker:
    """Move a thing across the view in a straight line."""

    planes: Planes
    start: tuple[float, float]
    step: tuple[float, float]

    def paint(self, frame: Planes, time: int) -> None:
        row, column = (int(s + d * time) // 2 * 2 for s, d in zip(self.start, self.step, strict=True))
        for plane, picture, shift in zip(frame, self.planes, (0, 1, 1), strict=True):
            paste(plane, picture, row >> shift, column >> shift)


def paste(plane: Plane, picture: Plane, row: int, column: int) -> None:
    """Paste the ellipse inscribed in the picture, as far as it is in the plane."""
    height, width = picture.shape
    top, left = max(0, -row), max(0, -column)
    bottom, right = min(height, plane.shape[0] - row), min(width, plane.shape[1] - column)
    if top < bottom and left < right:
        rows, columns = np.ogrid[top:bottom, left:right]
        inside = (rows / height - 0.5) ** 2 + (columns / width - 0.5) ** 2 < 0.25
        target = plane[row + top : row + bottom, column + left : column + right]
        np.copyto(target, picture[top:bottom, left:right], where=inside)


def walkers(still: Still, height: int, width: int, rng: np.random.Generator) -> list[Walker]:
    crossing = []
    for _ in range(rng.integers(2, 6)):
        h, w = (int(size * height) // 2 * 2 for size in rng.uniform(0.15, 0.45, 2))
        row, column = (int(rng.integers(0, limit - size)) // 2 * 2 for limit, size in ((height, h), (width, w)))
        y, u, v = still.phases[0]
        half = (slice(row // 2, (row + h) // 2), slice(column // 2, (column + w) // 2))
        picture = (y[row : row + h, column : column + w], u[half][::-1], v[half][:, ::-1])
        start = (rng.uniform(0.2, 0.8) * height - h / 2, rng.uniform(0, 1) * width - w / 2)
        speed = rng.normal(0, 1, 2) * (0.001, 0.005) * width
        crossing.append(Walker(picture, start, (speed[0], speed[1])))
    return crossing


def pan(length: int, reach: tuple[int, int], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the view's place in each frame, in half pixels [length, 2]: a pan or a tripod, held by hand or not."""
    ends = rng.uniform(0, 1, (2, 2))
    if rng.random() < 0.25:
        ends[1] = ends[0]
    path = np.linspace(ends[0], ends[1], length)
    shake = np.cumsum(rng.normal(0, 1, (length, 2)), axis=0) * 0.0012 * (rng.random() < 0.6)
    return np.asarray(np.clip(path + shake, 0, 1) * reach * 2, np.int64)


def grain(height: int, width: int, rng: np.random.Generator) -> Plane:
    """Draw grain to be cut out of a larger field for planes of that size. It wraps around in uint8."""
    field = rng.normal(0, GRAIN, (height + 128, width + 128))
    return np.clip(np.rint(field), -20, 20).astype(np.int8).view(np.uint8)


def camera(height: int, width: int, count: int, seed: int, rate: int = 25, stills: int = 24) -> Iterator[bytes]:
    """Yield `count` frames of yuv420p; a cut every 2 to 20 seconds, at most `stills` different places."""
    rng = np.random.default_rng(seed)
    fields = [grain(height, width, rng), grain(height // 2, width // 2, rng)]
    places: list[Still] = []
    left = count
    while left:
        if len(places) < stills:
            places.append(draw_still(height, width, rng))
        still = places[-1] if len(places) < stills else places[rng.integers(stills)]
        length = min(left, int(rng.integers(2 * rate, 20 * rate)))
        yield from scene(still, height, width, length, fields, rng)
        left -= length


def shot(height: int, width: int, count: int, seed: int) -> Iterator[bytes]:
    """Yield `count` frames of yuv420p of one camera scene."""
    rng = np.random.default_rng(seed)
    fields = [grain(height, width, rng), grain(height // 2, width // 2, rng)]
    yield from scene(draw_still(height, width, rng), height, width, count, fields, rng)


def scene(
    still: Still, height: int, width: int, length: int, fields: list[Plane], rng: np.random.Generator
) -> Iterator[bytes]:
    tall, wide = (min(p[0].shape[axis] for p in still.phases) for axis in (0, 1))
    crossing = walkers(still, height, width, rng)
    for time, (row, column) in enumerate(pan(length, (tall - height - 2, wide - width - 2), rng)):
        phase = still.phases[2 * (row % 2) + column % 2]
        y = phase[0][row // 2 : row // 2 + height, column // 2 : column // 2 + width].copy()
        box = (slice(row // 4, row // 4 + height // 2), slice(column // 4, column // 4 + width // 2))
        frame = (y, phase[1][box].copy(), phase[2][box].copy())
        for walker in crossing:
            walker.paint(frame, time)
        for plane, field in zip(frame, (fields[0], fields[1], fields[1]), strict=True):
            down, right = rng.integers(0, 128, 2)
            np.add(plane, field[down : down + plane.shape[0], right : right + plane.shape[1]], out=plane)
        yield b"".join(plane.tobytes() for plane in frame)


def screen(height: int, width: int, count: int, seed: int, rate: int = 25) -> Iterator[bytes]:
    """Yield `count` frames of yuv420p of a page of text: typed into, scrolled now and then, otherwise still."""
    rng = np.random.default_rng(seed)
    line, glyph = 16, 8
    glyphs = np.where(rng.random((64, line - 4, glyph - 2)) < 0.4, 40, 235).astype(np.uint8)
    page = np.full((height * 6 // line * line, width), 235, np.uint8)
    for row in range(0, page.shape[0], line):
        for column in range(glyph, int(rng.uniform(0.3, 0.95) * width), glyph):
            if rng.random() < 0.85:
                page[row + 2 : row + line - 2, column : column + glyph - 2] = glyphs[rng.integers(64)]
    chroma = np.full((height // 2, width // 2), 128, np.uint8)
    chroma[:, : width // 8] = 150
    top, goal, typed = 0, 0, glyph
    for time in range(count):
        if time % (4 * rate) == 0:
            goal = int(rng.integers(0, (page.shape[0] - height) // line)) * line
        top += int(np.clip(goal - top, -line, line))
        if time % 3 == 0:
            row = top + height // 2 // line * line
            page[row + 2 : row + line - 2, typed : typed + glyph - 2] = glyphs[rng.integers(64)]
            typed = typed + glyph if typed < width - 2 * glyph else glyph
        yield page[top : top + height].tobytes() + chroma.tobytes() * 2


Source = Callable[[int, int, int, int, int], Iterator[bytes]]  # height, width, count, seed, rate
