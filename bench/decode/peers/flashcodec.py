"""FlashCodec with its defaults: the engines that all decoders of the process share, one a core."""

import numpy as np
import numpy.typing as npt

import flashcodec
from peers.sharing import Indices, Pixels, Size


def frames(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    return flashcodec.sample(path, indices=indices, size=size).data


def snapped(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    """Read the key frames nearest to the indices instead."""
    return flashcodec.sample(path, indices=indices, size=size, snap="keyframe").data


def analysed(path: str, indices: Indices, size: Size, threads: int) -> npt.NDArray[np.float64]:
    """Find all frames without decoding them; return their times in seconds."""
    return flashcodec.analyse_bitstream(path).pts_seconds
