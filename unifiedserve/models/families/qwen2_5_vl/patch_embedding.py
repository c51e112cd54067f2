"""Embed uint8 patches by one matrix product, normalisation included.

With mean m and deviation d of each row element, W ((p - m) / d) = (W / d) (p - 128) + W ((128 - m) / d). The bytes less
128 are exact in bfloat16 and about as small as centred values, so the rounding of W / d costs no more than that of
normalised pixels would.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from unifiedserve.device import Device, Layer
from unifiedserve.messages.media import MediaKind

CENTRE = 128


class PatchEmbedding:
    """Embed by the tower's projection `weight` [hidden, ...].

    `normalisation` has mean and deviation of a row for each kind of media, float32.
    """

    def __init__(
        self, weight: Tensor, normalisation: Mapping[MediaKind, tuple[Tensor, Tensor]], device: Device
    ) -> None:
        self._dtype = weight.dtype
        self._device = device
        exact = weight.flatten(1).double()
        self._linear: dict[MediaKind, Layer] = {}
        for kind, (mean, deviation) in normalisation.items():
            same = next((k for k in self._linear if all(map(torch.equal, normalisation[k], (mean, deviation)))), None)
            self._linear[kind] = self._linear[same] if same else self._fold(exact, mean, deviation)

    def __call__(self, patches: Tensor, runs: list[tuple[MediaKind, int]]) -> Tensor:
        """Embed uint8 [N, row_bytes] as [N, hidden]; `runs` says of which kind each next rows are."""
        centred = (patches - CENTRE).view(torch.int8).to(self._dtype)  # wraps around: two's complement
        rows = torch.split(centred, [count for _, count in runs])
        linear = self._device.kernels.vision.linear
        embedded = [linear(part, self._linear[kind]) for part, (kind, _) in zip(rows, runs, strict=True)]
        return embedded[0] if len(embedded) == 1 else torch.cat(embedded)

    def _fold(self, weight: Tensor, mean: Tensor, deviation: Tensor) -> Layer:
        centre = self._device.upload((CENTRE - mean.double()) / deviation.double())
        scaled = weight / self._device.upload(deviation.double())
        return self._device.kernels.vision.layer(scaled.to(self._dtype), (weight @ centre).to(self._dtype))
