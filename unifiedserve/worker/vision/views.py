"""Make frames of a `Views` layout.

Torch resizes them, because it has filters that FlashCodec lacks, and cuts them into parts.
"""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from unifiedserve.messages.layouts import Views

Sizes = tuple[tuple[int, int], ...]


def cut_views(frame: Tensor, layout: Views) -> Tensor:
    """Cut one frame of the host, uint8, into all views' parts, uint8 [bytes].

    It has the elements of [3, height, width]. Equal to what torchvision's resize makes of uint8 tensors on CPU, which
    is torch's antialiased interpolation.
    """
    native = frame.view(1, 3, layout.height, layout.width)
    resized: dict[Sizes, Tensor] = {(): native}
    parts = []
    for view in layout.views:
        for done in range(len(view.sizes)):
            sizes = view.sizes[: done + 1]
            if sizes not in resized:
                resized[sizes] = _resized(resized[sizes[:-1]], sizes[-1], layout.interpolation)
        picture = resized[view.sizes]
        rows, columns = (picture.shape[2] // view.rows, picture.shape[3] // view.columns)
        grid = picture.view(3, view.rows, rows, view.columns, columns)
        parts.append(grid.permute(1, 3, 0, 2, 4).flatten())
    return torch.cat(parts)


def _resized(picture: Tensor, size: tuple[int, int], interpolation: str) -> Tensor:
    if tuple(picture.shape[2:]) == size:
        return picture
    return interpolate(picture, size, mode=interpolation, align_corners=False, antialias=True).contiguous()
