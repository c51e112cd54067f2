"""Cut JPEG files from a few large drawn pictures. Each is another part of one, with grain of its own."""

import functools
import os
from pathlib import Path

import numpy as np
from PIL import Image as Picture

from unifiedserve.bench.arrivals.seeds import stream
from unifiedserve.bench.workloads.media import scenes
from unifiedserve.bench.workloads.media.recipes import Image

_PICTURES = 4
_SIZE = (540, 720)  # rows and columns, before the margin that scenes add
_QUALITY = 90


@functools.cache
def _drawn(number: int) -> Picture.Image:
    """Draw one of the large pictures."""
    luma, *chroma = scenes.draw_still(*_SIZE, np.random.default_rng([300, number])).phases[0]
    rows, columns = (2 * min(limits) for limits in zip(*(plane.shape for plane in chroma), strict=True))
    size = (min(columns, luma.shape[1]), min(rows, luma.shape[0]))
    planes = (Picture.fromarray(luma).crop((0, 0, *size)), *(Picture.fromarray(p).resize(size) for p in chroma))
    return Picture.merge("YCbCr", planes).convert("RGB")


def photograph(image: Image, folder: Path) -> None:
    """Write an image's file; it appears under its name once complete."""
    rng = stream(image.seed, "image", image.number)
    picture = _drawn(int(rng.integers(_PICTURES)))
    scale = rng.uniform(0.4, 1.0) * min(picture.width / image.width, picture.height / image.height)
    width, height = image.width * scale, image.height * scale
    left, top = rng.uniform(0, picture.width - width), rng.uniform(0, picture.height - height)
    size = (image.width, image.height)
    part = np.asarray(picture.resize(size, Picture.Resampling.BICUBIC, (left, top, left + width, top + height)))
    grain = rng.normal(0, scenes.GRAIN, (image.height, image.width, 1))
    path = folder / image.name
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{os.getpid()}.partial.{path.name}")
    try:
        Picture.fromarray(np.clip(part + grain, 0, 255).astype(np.uint8)).save(partial, quality=_QUALITY)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
