"""TorchCodec: its own Resize works while the picture is converted; torch's interpolate takes about as long."""

from typing import Literal

from torchcodec.decoders import VideoDecoder
from torchcodec.transforms import Resize

from peers import torchvision_operators
from peers.sharing import Indices, Pixels, Size, shared

torchvision_operators.define()


def frames(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    return decoded(path, indices, size, "exact")


def approximate(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    return decoded(path, indices, size, "approximate")


def split(path: str, indices: Indices, size: Size, threads: int) -> Pixels:
    return shared(frames, path, indices, size, threads)


def decoded(path: str, indices: Indices, size: Size, seek_mode: Literal["exact", "approximate"]) -> Pixels:
    transforms = None if size is None else [Resize(size)]
    decoder = VideoDecoder(path, dimension_order="NHWC", seek_mode=seek_mode, transforms=transforms)
    return decoder.get_frames_at(indices.tolist()).data.numpy()
