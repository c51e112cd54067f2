"""Normalise pixels as in an encoder's training."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch

from unifiedserve.models.processor_rules import Rules

if TYPE_CHECKING:
    from torch import Tensor

Moments = tuple[float | None, Sequence[float] | None, Sequence[float] | None]


def normalisation(
    rescale: float | None, mean: Sequence[float] | None, deviation: Sequence[float] | None
) -> tuple[Tensor, Tensor]:
    """Return float32 [3] mean and deviation of uint8 values a channel: (value - mean) / deviation.

    `rescale` is what values are multiplied by before the checkpoint's own mean and deviation; None leaves a step out.
    It is folded into the result as transformers' torchvision backend does it, so that floats are equal.
    """
    factor = 1.0 if rescale is None else 1.0 / rescale
    return torch.tensor(mean or (0.0,) * 3) * factor, torch.tensor(deviation or (1.0,) * 3) * factor


def normalisation_of(rules: Rules) -> tuple[Tensor, Tensor]:
    """Return `normalisation` by a processor's rules; raises ConfigError as `moments_of`."""
    return normalisation(*moments_of(rules))


def moments_of(rules: Rules) -> Moments:
    """Return what `normalisation` takes of a processor's rules.

    Raises ConfigError for numbers that cannot be computed with.
    """
    factor, mean, deviation = None, None, None
    if rules["do_rescale"]:
        factor = rules["rescale_factor"]
        if not _is_number(factor) or not factor:
            raise rules.error("rescale_factor", "a number other than 0")
    if rules["do_normalize"]:
        mean, deviation = rules["image_mean"], rules["image_std"]
        if not _are_channels(mean):
            raise rules.error("image_mean", "3 numbers")
        if not (_are_channels(deviation) and all(deviation)):
            raise rules.error("image_std", "3 numbers other than 0")
    return factor, mean, deviation


def _are_channels(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 3 and all(map(_is_number, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
