"""Shape decoded frames: transforms and dtype, settled when the stream is known."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from flashcodec.bitstream import Bitstream
from flashcodec.layouts import DeepLayout, Layout, RGBLayout
from flashcodec.torch.steps import Scale, Step, apply, fold
from flashcodec.torch.transforms import DecoderTransform

OutputDtype = torch.dtype | Literal["auto"]


class Shaping:
    """Hold transforms and dtype of a decoder's frames. Once settled and pickled they crop at the same place again.

    Raises ValueError for a dtype that is none of torch.uint8, torch.float32 and "auto".
    """

    def __init__(self, transforms: Sequence[DecoderTransform], dtype: OutputDtype) -> None:
        if dtype not in (torch.uint8, torch.float32, "auto"):
            raise ValueError(
                f"Invalid output_dtype ({dtype}). Supported values are torch.uint8, torch.float32, and 'auto'."
            )
        self._transforms: Sequence[DecoderTransform | Step] = transforms
        self._dtype: OutputDtype = dtype
        self._left: Sequence[Step] = ()  # of the transforms, after the decoder's pass

    @property
    def deep(self) -> bool:
        """Tell whether frames are float32, made of 16 bits a channel."""
        return self._dtype == torch.float32

    def settle(self, stream: Bitstream, plain: RGBLayout) -> Layout:
        """Return what a stream's frames are decoded to. It is `plain` without transforms and as uint8.

        Raises ValueError for crops that do not lie within the frames.
        """
        height, width = stream.height, stream.width
        steps = self._transforms = _placed(self._transforms, height, width)
        if self._dtype == "auto":
            self._dtype = torch.float32 if (stream.core.bit_depth or 0) > 8 else torch.uint8
        if self.deep:
            self._left = steps or _resize(plain, height, width)
            return DeepLayout(height, width)
        if not steps:
            return plain
        layout, self._left = fold(steps, height, width)
        return layout

    def finish(self, data: Any) -> torch.Tensor:
        """Return the frames of what was decoded: [n, height, width, 3]."""
        if self.deep:
            data = torch.from_numpy(data.view(np.uint16)).to(torch.float32) / 65535
        frames = data if isinstance(data, torch.Tensor) else torch.from_numpy(data)
        return apply(self._left, frames)


def _placed(transforms: Sequence[DecoderTransform | Step], height: int, width: int) -> list[Step]:
    steps: list[Step] = []
    for transform in transforms:
        step = transform.step(height, width) if isinstance(transform, DecoderTransform) else transform
        height, width = step.height, step.width
        steps.append(step)
    return steps


def _resize(plain: RGBLayout, height: int, width: int) -> list[Step]:
    """Return the resize that `plain` stands for. Raises ValueError for one that tensors of float32 have not."""
    if (plain.height, plain.width) == (height, width):
        return []
    if plain.interpolation == "area":
        raise ValueError('frames of float32 are resized with interpolation="bicubic" or "bilinear"')
    return [Scale(plain.height or height, plain.width or width, plain.interpolation)]
