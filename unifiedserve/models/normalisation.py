"""The normalisation of pixels that an encoder was trained with."""

from collections.abc import Sequence

import torch
from torch import Tensor


def normalisation(
    rescale: float | None, mean: Sequence[float] | None, deviation: Sequence[float] | None
) -> tuple[Tensor, Tensor]:
    """Return float32 [3] mean and deviation of uint8 values a channel: (value - mean) / deviation.

    `rescale` is what values are multiplied by before the checkpoint's own mean and deviation; None leaves a step out.
    It is folded into the result as transformers' torchvision backend does it, so that floats are equal.
    """
    factor = 1.0 if rescale is None else 1.0 / rescale
    return torch.tensor(mean or (0.0,) * 3) * factor, torch.tensor(deviation or (1.0,) * 3) * factor
