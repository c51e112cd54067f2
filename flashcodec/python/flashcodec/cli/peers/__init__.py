"""List the decoders that `flashcodec bench` compares.

Each module beside this one reads frames in its library's own way, behind one function:

    frames(path, indices, size, threads) -> uint8 [n, height, width, 3], RGB

`indices` are frame numbers in presentation order, in any order; `size` is (height, width) or None for the native one;
`threads` are the cores it may use. The modules import nothing of FlashCodec, for `bench/decode` runs them in processes
where each decoder is alone.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flashcodec.video_decoder import VideoDecoder

Frames = npt.NDArray[np.uint8]
Read = Callable[[str, Sequence[int]], Frames]
"""Read the frames of these indices at native size: uint8 [n, height, width, 3]."""


@dataclass(frozen=True)
class Reader:
    """Read by a function of a module beside this one, with all cores. Its library is imported at the first call."""

    module: str
    function: str = "frames"

    def __call__(self, path: str, indices: Sequence[int]) -> Frames:
        function = getattr(import_module(f"{__name__}.{self.module}"), self.function)
        frames: Frames = function(path, np.asarray(indices, np.int64), None, len(os.sched_getaffinity(0)))
        return frames


class Peer(NamedTuple):
    """Describe a decoder at one setting. `module` must be importable for it to take part."""

    name: str
    module: str
    read: Read


def flashcodec(path: str, indices: Sequence[int]) -> Frames:
    """Read frames with FlashCodec's defaults."""
    return VideoDecoder(path, dimension_order="NHWC").get_frames_at(list(indices)).data


PEERS = (
    Peer("TorchCodec", "torchcodec", Reader("torchcodec", "threaded")),
    Peer("TorchCodec, split", "torchcodec", Reader("torchcodec", "split")),
    Peer("PyAV", "av", Reader("pyav")),
    Peer("PyAV, split", "av", Reader("pyav", "split")),
    Peer("decord", "decord", Reader("decord")),
    Peer("OpenCV", "cv2", Reader("opencv")),
)


def present() -> list[Peer]:
    """Return the peers whose libraries are installed."""
    return [peer for peer in PEERS if find_spec(peer.module) is not None]
