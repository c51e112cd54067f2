"""Media for an encoder: plans, and patches of pixels."""

import torch
from torch import Tensor

from flashcodec import PatchLayout
from unifiedserve.messages.media import MediaKind
from unifiedserve.models.processor import MediaPlan

ROW_BYTES = 3 * 2 * 14 * 14
MERGED = 4  # patches a visual token
Units = list[tuple[MediaPlan, int]]


def plan(kind: MediaKind, rows: int, columns: int, units: int = 1) -> MediaPlan:
    """A medium of `rows` × `columns` visual tokens a unit."""
    return MediaPlan(
        kind=kind,
        frame_indices=tuple(range(2 * units)) if kind == "video" else (),
        layout=PatchLayout(rows * 28, columns * 28, 14, 2, 2),
        units=units,
        patches_per_unit=rows * columns * MERGED,
        tokens_per_unit=rows * columns,
        seconds_per_unit=1.0 if kind == "video" else 0.0,
    )


def pixels(units: Units, seed: int = 0) -> Tensor:
    """uint8 patches: of each a colour, a slope and some grain, so that neither is all."""
    generator = torch.Generator().manual_seed(seed)
    count = sum(plan.patches_per_unit * units for plan, units in units)
    colour = torch.rand(count, 1, generator=generator) * 255
    slope = torch.linspace(-1, 1, ROW_BYTES) * torch.randn(count, 1, generator=generator) * 50
    grain = torch.randn(count, ROW_BYTES, generator=generator) * 20
    return (colour + slope + grain).clamp(0, 255).to(torch.uint8)
