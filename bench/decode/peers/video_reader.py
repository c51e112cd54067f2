"""video-reader-rs: chooses by itself whether it seeks or reads through. Its default resize is not antialiased."""

import numpy as np
import video_reader

from peers.sharing import Indices, Pixels, Size


def frames(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    resize = {} if size is None else {"target_height": size[0], "target_width": size[1], "resize_algo": "bilinear"}
    reader = video_reader.PyVideoReader(path, threads=threads, **resize)
    return np.asarray(reader.get_batch(indices.tolist()))
