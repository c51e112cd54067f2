"""Fold crops and resizes in a row: as much of them as one pass can do, and the others on tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from flashcodec.layouts import Interpolation, RGBLayout


@dataclass(frozen=True)
class Crop:
    """Take height x width pixels from (top, left) on."""

    top: int
    left: int
    height: int
    width: int

    def within(self, outer: "Crop") -> "Crop":
        """Return the same of what is in turn taken by `outer`."""
        return Crop(outer.top + self.top, outer.left + self.left, self.height, self.width)

    def apply(self, frames: torch.Tensor) -> torch.Tensor:
        return frames[:, :, self.top : self.top + self.height, self.left : self.left + self.width]


@dataclass(frozen=True)
class Scale:
    """Resize to height x width, antialiased."""

    height: int
    width: int
    interpolation: Interpolation = "bilinear"

    def apply(self, frames: torch.Tensor) -> torch.Tensor:
        size = self.height, self.width
        whole = frames.dtype == torch.uint8
        source = frames.to(torch.float32) if whole and frames.is_cuda else frames  # which have no resize of uint8
        scaled = torch.nn.functional.interpolate(source, size, mode=self.interpolation, antialias=True)
        return scaled.round().clamp(0, 255).to(torch.uint8) if whole and frames.is_cuda else scaled


Step = Crop | Scale


def fold(steps: Sequence[Step], height: int, width: int) -> tuple[RGBLayout, Sequence[Step]]:
    """Return a layout that does the first steps to such frames, and the others."""
    part = Crop(0, 0, height, width)
    scale: Scale | None = None
    crop = part
    done = 0
    for step in steps:
        if isinstance(step, Crop):
            part, crop = (step.within(part), crop) if scale is None else (part, step.within(crop))
        elif scale is None:
            scale, crop = step, Crop(0, 0, step.height, step.width)
        else:
            break
        done += 1
    if scale is None:
        scale, crop = Scale(part.height, part.width), Crop(0, 0, part.height, part.width)
    layout = RGBLayout(
        scale.height,
        scale.width,
        "NHWC",
        scale.interpolation,
        crop=(crop.height, crop.width),
        corner=(crop.top, crop.left),
        part=(part.top, part.left, part.height, part.width),
    )
    return layout, steps[done:]


def apply(steps: Sequence[Step], frames: torch.Tensor) -> torch.Tensor:
    """Return frames [n, height, width, 3] after these steps."""
    channels_first = frames.permute(0, 3, 1, 2)
    for step in steps:
        channels_first = step.apply(channels_first)
    return channels_first.permute(0, 2, 3, 1)
