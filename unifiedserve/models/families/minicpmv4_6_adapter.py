"""Run the modules of the family in `minicpmv4_6.py`."""

import torch
from torch import Tensor

from unifiedserve.models.families.minicpmv4_6 import part_sizes
from unifiedserve.models.picture_adapter import PictureAdapter
from unifiedserve.models.pictures import Units


class MiniCPMAdapter(PictureAdapter):
    @torch.inference_mode()
    def encode(self, patches: Tensor, units: Units) -> Tensor:
        side = self.config.vision_config.patch_size
        pictures, sizes, pixels = [], [], patches.flatten()
        for plan, count in units:
            mean, deviation = self._normalisation[plan.kind]
            for height, width in part_sizes(plan) * count:
                picture, pixels = pixels[: 3 * height * width], pixels[3 * height * width :]
                values = picture.view(3, height, width).float().sub_(mean).div_(deviation)
                rows = values.view(3, height // side, side, width // side, side)
                pictures.append(rows.permute(0, 2, 1, 3, 4).reshape(3, side, -1))
                sizes.append((height // side, width // side))
        packed = torch.cat(pictures, dim=-1)[None].to(self.dtype)
        grids = self.device.upload(torch.tensor(sizes, dtype=torch.int32))
        features = self.model.model.get_image_features(packed, grids).pooler_output
        return torch.cat(list(features))
