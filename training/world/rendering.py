"""Pictures of a scene, at any size and time."""

import math

import numpy as np
from numpy.typing import NDArray

from training.world.scene import COLOURS, Colour, Floats, Scene, Shape, Thing

Image = NDArray[np.uint8]
Layer = NDArray[np.float32]

PAINTS: dict[Colour, tuple[int, int, int]] = {
    "red": (214, 32, 32),
    "orange": (240, 134, 20),
    "yellow": (242, 222, 40),
    "green": (36, 158, 52),
    "blue": (38, 76, 214),
    "purple": (118, 38, 160),
    "pink": (246, 140, 188),
    "white": (248, 248, 248),
    "black": (14, 14, 14),
}
NOISE_MARGIN = 16  # a frame's noise is cut out of a larger field, at another place each time


class Renderer:
    """A renderer of a scene at `height` × `width` pixels; the same arguments give the same pixels."""

    def __init__(self, scene: Scene, height: int, width: int) -> None:
        self._scene, self._height, self._width = scene, height, width
        rng = np.random.default_rng(scene.look)
        self._background = _background(rng, height, width)
        strength = float(rng.choice([0.0, 3.0, 7.0, 12.0]))
        size = (height + NOISE_MARGIN, width + NOISE_MARGIN, 3)
        self._noise = strength * rng.standard_normal(size, dtype=np.float32)
        self._paints = {colour: _paint(rng, colour) for colour in COLOURS}
        self._glow = float(rng.uniform(-0.12, 0.12))

    def frame(self, seconds: float = 0.0) -> Image:
        """Draw a frame: uint8 [height, width, 3]"""
        picture = self._background.copy()
        for thing in self._scene.things:
            if thing.begin <= seconds < thing.end:
                self._draw(picture, thing, seconds)
        rng = np.random.default_rng((self._scene.look, round(seconds * 1000)))
        top, left = rng.integers(NOISE_MARGIN, size=2)
        picture += self._noise[top : top + self._height, left : left + self._width]
        return np.clip(picture, 0, 255).astype(np.uint8)

    def mask(self, thing: Thing, seconds: float) -> Layer:
        """Return how much of each pixel the thing covers: float32 [height, width]."""
        whole = np.zeros((self._height, self._width), np.float32)
        if (part := self._cover(thing, seconds)) is not None:
            rows, columns, cover, _ = part
            whole[rows, columns] = cover
        return whole

    def _draw(self, picture: Layer, thing: Thing, seconds: float) -> None:
        if (part := self._cover(thing, seconds)) is not None:
            rows, columns, cover, shade = part
            paint = self._paints[thing.colour_at(seconds)] * (1 + self._glow * shade)[..., None]
            picture[rows, columns] += cover[..., None] * (paint - picture[rows, columns])

    def _cover(self, thing: Thing, seconds: float) -> tuple[slice, slice, Layer, Layer] | None:
        """Return the part of the picture with the thing, how much of it is covered, and the height in it (-1 to 1)."""
        x, y = thing.path.at(seconds)
        radius = thing.size / 2
        across, down = self._width / self._scene.width, self._height / self._scene.height
        columns = _span(float(x), radius, across, self._width)
        rows = _span(float(y), radius, down, self._height)
        if rows.start >= rows.stop or columns.start >= columns.stop:
            return None
        u = ((np.arange(columns.start, columns.stop) + 0.5) / across - float(x)) / radius
        v = ((np.arange(rows.start, rows.stop) + 0.5) / down - float(y)) / radius
        cosine, sine = math.cos(thing.angle), math.sin(thing.angle)
        right = u[None] * cosine + v[:, None] * sine
        below = v[:, None] * cosine - u[None] * sine
        edge = radius * min(across, down)  # pixels of a unit of distance
        cover = np.clip(0.5 - distance(thing.shape, right, below) * edge, 0, 1)
        return rows, columns, cover.astype(np.float32), below.astype(np.float32)


def distance(shape: Shape, x: Floats, y: Floats) -> Floats:
    """Return roughly how far points are outside (negative: inside) a shape, all of it within 1; y points down."""
    if shape == "circle":
        result = np.hypot(x, y) - 0.95
    elif shape == "ring":
        result = np.abs(np.hypot(x, y) - 0.72) - 0.26
    elif shape == "square":
        result = np.maximum(np.abs(x), np.abs(y)) - 0.7
    elif shape == "triangle":
        slanted = np.abs(x) * math.cos(math.pi / 6) - y * 0.5
        result = np.maximum(slanted, y) - 0.5
    elif shape == "cross":
        along, beside = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
        result = np.maximum(along - 0.95, beside - 0.3)
    else:
        result = _star(x, y)
    return result


def _star(x: Floats, y: Floats) -> Floats:
    """Return the distance to a star: to the line from an outer corner to the next inner one."""
    sector = math.tau / 5
    turn = np.abs((np.arctan2(x, -y) + sector / 2) % sector - sector / 2)
    radius = np.hypot(x, y)
    outer, inner = (0.0, 1.0), (0.45 * math.sin(sector / 2), 0.45 * math.cos(sector / 2))
    normal = np.array([outer[1] - inner[1], inner[0] - outer[0]])
    normal = normal / np.hypot(*normal)
    point_x, point_y = radius * np.sin(turn), radius * np.cos(turn)
    result: Floats = (point_x - outer[0]) * normal[0] + (point_y - outer[1]) * normal[1]
    return result


def _span(centre: float, radius: float, scale: float, limit: int) -> slice:
    return slice(
        max(0, math.floor((centre - radius) * scale) - 1), min(limit, math.ceil((centre + radius) * scale) + 1)
    )


def _paint(rng: np.random.Generator, colour: Colour) -> Layer:
    return np.clip(np.array(PAINTS[colour]) + rng.uniform(-14, 14, 3), 0, 255).astype(np.float32)


def _background(rng: np.random.Generator, height: int, width: int) -> Layer:
    """Draw clouds of two sizes in muted colours, and on some of them stripes or tiles."""
    base = rng.uniform(70, 175) + rng.uniform(-22, 22, 3)
    rough = rng.uniform(4, 22)
    picture = base + _clouds(rng, height, width, 3, 3) * rough + _clouds(rng, height, width, 12, 1) * rough / 2
    kind = rng.integers(4)
    if kind:
        y, x = np.mgrid[0:height, 0:width] / math.sqrt(height * width)
        angle, waves = rng.uniform(0, math.pi), rng.uniform(3, 11) * math.tau
        pattern = np.sin(waves * (x * math.cos(angle) + y * math.sin(angle)))
        if kind == 2:
            pattern = pattern * np.sin(waves * (y * math.cos(angle) - x * math.sin(angle)))
        if kind == 3:
            pattern = np.sign(pattern)
        picture = picture + (pattern * rng.uniform(4, 16))[..., None]
    return np.clip(picture, 30, 215).astype(np.float32)


def _clouds(rng: np.random.Generator, height: int, width: int, cells: int, channels: int) -> Floats:
    """Draw smooth noise [height, width, channels], about `cells` blobs across."""
    coarse = rng.standard_normal((cells + 1, cells + 1, channels))
    rows, columns = _stretch(height, cells), _stretch(width, cells)
    smooth: Floats = np.einsum("hi,ijc,wj->hwc", rows, coarse, columns, optimize=True)
    return smooth


def _stretch(size: int, cells: int) -> Floats:
    """Return weights of linear interpolation [size, cells + 1]."""
    place = np.linspace(0, cells, size)
    weights: Floats = np.maximum(0, 1 - np.abs(place[:, None] - np.arange(cells + 1)))
    return weights
