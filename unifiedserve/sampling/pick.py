"""Pick by inverse CDF: the entry of a distribution that a uniform number falls in, never one of weight 0."""

import torch
from torch import Tensor

#: entries whose sum is found first
BLOCK = 1024
#: a probability of 1 as a whole number: what is above 2^-38 loses no bit, and a sum of probabilities fits into 64 bits
ONE = 2.0**62


class Pick:
    """Pick from many entries: the block first, by the sums of blocks, and then the entry within it.

    Probabilities are summed as whole numbers. So sums are exact, and what is picked depends neither on the order in
    which a device adds nor on the other rows.
    """

    def __init__(self, rows: int, entries: int, device: torch.device) -> None:
        """Take memory for so many rows at a time, which is used again and again."""
        self._entries = entries
        self._weights = torch.empty(rows, -(-entries // BLOCK), BLOCK, dtype=torch.int64, device=device)
        self._weights.view(rows, -1)[:, entries:] = 0

    def __call__(self, probabilities: Tensor, uniforms: Tensor) -> Tensor:
        """Return int64 [n] of float32 [n, entries] and float64 [n] in [0, 1). The former is overwritten."""
        weights = self._weights[: len(probabilities)]
        weights.view(len(weights), -1)[:, : self._entries] = probabilities.mul_(ONE)
        sums = weights.sum(-1)
        bounds = sums.cumsum(-1)
        total = bounds[:, -1:]
        target = (uniforms[:, None] * total).long().minimum(total - 1)
        block = _first_above(target, bounds)
        inside = weights.gather(1, block[:, :, None].expand(-1, 1, BLOCK))[:, 0].cumsum(-1)
        place = _first_above(target - (bounds - sums).gather(1, block), inside)
        return (block * BLOCK + place)[:, 0].clamp_(max=self._entries - 1)


def pick_one_of_few(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Return int64 [n] of float64 weights [n, entries] and float64 [n] in [0, 1). The weights' total need not be 1."""
    bounds = weights.cumsum(-1)
    total = bounds[:, -1:]
    target = (uniforms[:, None] * total).minimum(torch.nextafter(total, torch.zeros_like(total)))
    return _first_above(target, bounds)[:, 0]


def _first_above(target: Tensor, bounds: Tensor) -> Tensor:
    """Return the number of the first of ascending bounds [n, entries] above each target [n, 1].

    It is one of theirs even if what they are made of is no number.
    """
    return torch.searchsorted(bounds, target, right=True).clamp_(max=bounds.shape[1] - 1)
