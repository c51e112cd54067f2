"""Run the modules of the family in `llava_next.py`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from unifiedserve.models.picture_adapter import PictureAdapter
from unifiedserve.models.pictures import Units


class LlavaNextAdapter(PictureAdapter):
    def features(self, pixels: Tensor, units: Units) -> Tensor:
        return torch.cat(list(self.image_features(pixels, units)))

    def image_features(self, pixels: Tensor, units: Units) -> Sequence[Tensor]:
        """Return visual tokens [m, hidden] for each of `units`, all of images."""
        sizes = torch.tensor([plan.source for plan, _ in units])
        features: Sequence[Tensor] = self.model.model.get_image_features(pixels, sizes).pooler_output
        return features
