"""Pack codes in 32-bit words."""

import torch
from torch import Tensor


def unpack(words: Tensor, bits: int) -> Tensor:
    """Split int32 [rows, words] into uint8 [rows, words * 32 / bits]. A word's lowest bits come first."""
    octets = words.clone(memory_format=torch.contiguous_format).view(torch.uint8)  # a column's strides may be any
    return octets if bits == 8 else torch.stack((octets & 15, octets >> 4), dim=-1).flatten(1)
