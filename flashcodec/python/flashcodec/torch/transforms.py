"""Define TorchCodec's transforms, which a decoder applies to frames before it returns them.

Crops, one resize and crops after it are part of the pass that writes RGB, so pixels outside of them are not computed;
steps after a second resize are done to the tensors. `Resize` equals torchvision's, bit for bit.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from flashcodec.errors import ArgumentError
from flashcodec.torch.steps import Crop, Scale, Step

__all__ = ["CenterCrop", "DecoderTransform", "RandomCrop", "Resize", "from_torchvision"]


class DecoderTransform(ABC):
    """Transform a VideoDecoder's frames, by their (height, width).

    Raises ValueError unless `size` is (height, width), both positive.
    """

    def __init__(self, size: Sequence[int]) -> None:
        if len(size) != 2:
            name = type(self).__name__
            raise ValueError(f"{name} transform must have a (height, width) pair for the size, got {size}.")
        if min(size) < 1:
            raise ArgumentError(f"height and width must be > 0, got {tuple(size)}")
        self.size = size

    @abstractmethod
    def step(self, height: int, width: int) -> Step:
        """Return what is done to frames of height x width, alike for all."""


class Resize(DecoderTransform):
    """Resize frames to `size`, (height, width): bilinear, antialiased."""

    def step(self, height: int, width: int) -> Step:
        height, width = self.size
        return Scale(height, width)


class CenterCrop(DecoderTransform):
    """Take `size`, (height, width), from the middle of frames, halves of a pixel rounded to even.

    A decoder of smaller frames raises ArgumentError.
    """

    def step(self, height: int, width: int) -> Step:
        top, left = height - self.size[0], width - self.size[1]
        if min(top, left) < 0:
            raise ArgumentError(f"CenterCrop's size {tuple(self.size)} is greater than the frames, {height}x{width}")
        return Crop(round(top / 2), round(left / 2), *self.size)


class RandomCrop(DecoderTransform):
    """Take `size`, (height, width), from a random place, which each decoder draws once from torch's generator.

    A decoder of smaller frames raises ValueError.
    """

    def step(self, height: int, width: int) -> Step:
        below, beside = height - self.size[0], width - self.size[1]
        if min(below, beside) < 0:
            raise ValueError(f"Input dimensions ({height}, {width}) are smaller than the crop size {self.size}.")
        top = int(torch.randint(0, below + 1, size=()).item())
        left = int(torch.randint(0, beside + 1, size=()).item())
        return Crop(top, left, *self.size)


def from_torchvision(transform: Any) -> DecoderTransform:
    """Return what stands for one of torchvision.transforms.v2. Raises ValueError if there is nothing."""
    v2: Any = sys.modules.get("torchvision.transforms.v2")  # its owner has imported it
    if isinstance(transform, DecoderTransform):
        return transform
    if v2 is not None and isinstance(transform, v2.Resize):
        _check_resize(transform)
        return Resize(_pair(transform))
    if v2 is not None and isinstance(transform, v2.CenterCrop):
        return CenterCrop(_pair(transform))
    if v2 is not None and isinstance(transform, v2.RandomCrop):
        _check_random_crop(transform)
        return RandomCrop(_pair(transform))
    raise ValueError(
        f"Unsupported transform: {transform}. Supported are Resize, CenterCrop and RandomCrop of "
        "flashcodec.torch.transforms and of torchvision.transforms.v2."
    )


def _pair(transform: Any) -> Sequence[int]:
    name, size = type(transform).__name__, transform.size
    if size is None:
        raise ValueError(f"TorchVision {name} transform must have a size specified.")
    if len(size) != 2:
        raise ValueError(f"TorchVision {name} transform must have a (height, width) pair for the size, got {size}.")
    pair: Sequence[int] = size
    return pair


def _check_resize(transform: Any) -> None:
    if getattr(transform.interpolation, "value", transform.interpolation) != "bilinear":
        raise ValueError("TorchVision Resize transform must use bilinear interpolation.")
    if transform.antialias is False:
        raise ValueError("TorchVision Resize transform must have antialias enabled.")


def _check_random_crop(transform: Any) -> None:
    if transform.padding is not None:
        raise ValueError("TorchVision RandomCrop transform must not specify padding.")
    if transform.pad_if_needed:
        raise ValueError("TorchVision RandomCrop transform must not specify pad_if_needed.")
    if transform.fill != 0:
        raise ValueError("TorchVision RandomCrop fill must be 0.")
    if transform.padding_mode != "constant":
        raise ValueError("TorchVision RandomCrop padding_mode must be constant.")
