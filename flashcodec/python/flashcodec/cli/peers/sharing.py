"""Share types between the readers, and decode by several single-threaded decoders side by side."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]
Size = tuple[int, int] | None
Frames = Callable[[str, Indices, Size, int], Pixels]


def shared(frames: Frames, path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    """Read by `threads` calls at once, each with one thread. Each has a contiguous share of the sorted indices."""
    order = np.argsort(indices, kind="stable")
    shares = [share for share in np.array_split(order, threads) if len(share)]
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(lambda share: frames(path, indices[share], size, 1), shares))
    out = np.empty((len(indices), *parts[0].shape[1:]), np.uint8)
    for share, part in zip(shares, parts, strict=True):
        out[share] = part
    return out
