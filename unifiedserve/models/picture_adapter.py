"""Adapt families whose encoder reads square pictures of one size (models/pictures.py)."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unifiedserve.device import CPU, Device
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.normalisation import normalisation_of
from unifiedserve.models.pictures import Units, picture_rules
from unifiedserve.models.processor_rules import Rules
from unifiedserve.placement import Network
from unifiedserve.ranks.group import Group


class PictureAdapter(LanguageAdapter):
    """Normalise pictures as transformers does, and leave the rest to `features`."""

    def __init__(
        self,
        config: Any,
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        model_dir: Path,
        device: Device = CPU,
        networks: Collection[Network] = tuple(Network),
        group: Group | None = None,
    ) -> None:
        super().__init__(config, weights, dtype, model_dir, device, networks, group)
        self._normalisation = {
            kind: (device.upload(mean), device.upload(deviation))
            for kind, rules in picture_rules(model_dir, config).items()
            for mean, deviation in [channel_normalisation(rules)]
        }

    @torch.inference_mode()
    def encode(self, patches: Tensor, units: Units) -> Tensor:
        pictures, row = [], 0
        for plan, count in units:
            rows = patches[row : row + count * plan.patches_per_unit]
            row += len(rows)
            mean, deviation = self._normalisation[plan.kind]
            side = patches.shape[1] // 3
            pictures.append(rows.view(-1, 3, side, side).float().sub_(mean).div_(deviation))
        return self.features(torch.cat(pictures).to(self.dtype), units)

    def features(self, pixels: Tensor, units: Units) -> Tensor:
        """Return visual tokens [M, hidden] of the `units`' normalised pictures [n, 3, side, side]."""
        features: Sequence[Tensor] = self.model.model.get_image_features(pixels).pooler_output
        return torch.cat(list(features))


def channel_normalisation(rules: Rules) -> tuple[Tensor, Tensor]:
    """Return float32 [3, 1, 1] mean and deviation of uint8 values."""
    mean, deviation = normalisation_of(rules)
    return mean.view(3, 1, 1), deviation.view(3, 1, 1)
