"""Decoding JPEGs to a model's patches: with and without simplejpeg, in turn in one process.

    python bench/decode/images.py --json bench/results/images.json

Prints milliseconds an image (median of rounds, and their spread), by one thread and by all cores.
"""

import argparse
import io
import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from flashcodec.image import image_in_layout
from PIL import Image
from rich.progress import track

from flashcodec import PatchLayout

SIZES = ((640, 360), (1920, 1080), (4000, 3000))
PIXELS_A_ROUND = 4e7
LAYOUT = PatchLayout(364, 644)


def picture(width: int, height: int) -> bytes:
    """Return a JPEG with slopes, edges and noise, as photos have."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width]
    colours = np.stack([x * 255 // width, y * 255 // height, (x // 9 + y // 7) % 2 * 200], -1)
    pixels = np.clip(colours + rng.integers(-30, 30, colours.shape), 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def patches(data: bytes) -> Any:
    return image_in_layout(data, LAYOUT)


def without_simplejpeg() -> Any:
    return mock.patch("flashcodec.jpeg._library", return_value=None)


CONTESTANTS: dict[str, Callable[[], Any]] = {"with simplejpeg": nullcontext, "without": without_simplejpeg}


def milliseconds(contestant: Callable[[], Any], data: bytes, threads: int, count: int) -> float:
    """Return what an image takes if `threads` threads decode `count` of them."""
    with contestant(), ThreadPoolExecutor(threads) as pool:
        begin = time.perf_counter()
        list(pool.map(lambda each: patches(each) is None, [data] * count))  # memory is used again
        return (time.perf_counter() - begin) / count * 1e3


def measure(rounds: int) -> list[dict[str, Any]]:
    """Measure all contestants in turn, round by round."""
    rows = []
    for width, height in track(SIZES, description="sizes"):
        data = picture(width, height)
        with without_simplejpeg():
            expected = patches(data)
        assert (patches(data) == expected).all()
        count = max(8, int(PIXELS_A_ROUND / width / height))
        for threads in sorted({1, len(os.sched_getaffinity(0))}):
            times = [
                {name: milliseconds(contestant, data, threads, count) for name, contestant in CONTESTANTS.items()}
                for _ in range(rounds)
            ]
            for name in CONTESTANTS:
                each = [found[name] for found in times]
                rows.append(
                    {
                        "decoder": name,
                        "size": f"{width}x{height}",
                        "threads": threads,
                        "ms": statistics.median(each),
                        "least": min(each),
                        "most": max(each),
                    }
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    rows = measure(given.rounds)
    for row in rows:
        spread = f"({row['least']:.2f} to {row['most']:.2f})"
        print(f"{row['size']:>10} {row['threads']} threads  {row['decoder']:<30} {row['ms']:8.2f} ms {spread}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
