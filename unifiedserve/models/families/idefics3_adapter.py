"""Run the modules of the family in `idefics3.py`."""

import torch
from torch import Tensor

from unifiedserve.models.picture_adapter import PictureAdapter
from unifiedserve.models.pictures import Units


class Idefics3Adapter(PictureAdapter):
    def features(self, pixels: Tensor, units: Units) -> Tensor:
        model = self.model.model
        side = pixels.shape[-1] // self.config.vision_config.patch_size
        whole = torch.ones(len(pixels), side, side, dtype=torch.bool, device=pixels.device)
        hidden = model.vision_model(pixel_values=pixels, patch_attention_mask=whole).last_hidden_state
        features: Tensor = model.connector(hidden)
        return features.flatten(0, 1)
