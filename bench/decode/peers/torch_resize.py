"""Frames on a GPU, resized there by torch, for decoders that do not resize."""

import torch
from torch.nn.functional import interpolate

from peers.sharing import Size


def resized(data: torch.Tensor, size: Size) -> torch.Tensor:
    """Return uint8 [n, height, width, 3] of [n, 3, h, w], antialiased, a few frames at a time."""
    if size is not None:
        parts = [
            interpolate(part.float(), size, mode="bilinear", antialias=True, align_corners=False).round().byte()
            for part in data.split(16)
        ]
        data = torch.cat(parts)
    out = data.permute(0, 2, 3, 1).contiguous()
    torch.cuda.synchronize()
    return out
