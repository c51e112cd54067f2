"""Run the modules of the family in `llava_onevision.py`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from flashcodec import TileLayout
from unifiedserve.messages.media import MediaPlan
from unifiedserve.models.families.llava_next_video_adapter import Encode, LlavaNextVideoAdapter
from unifiedserve.models.pictures import Units


class LlavaOnevisionAdapter(LlavaNextVideoAdapter):
    def way(self, plan: MediaPlan) -> Encode:
        return super().way(plan) if plan.kind == "video" or isinstance(plan.layout, TileLayout) else self.whole_features

    def whole_features(self, pixels: Tensor, units: Units) -> Sequence[Tensor]:
        """Return visual tokens [m, hidden] for each of `units`, all of images among others."""
        sizes = torch.tensor([plan.source for plan, _ in units])
        several = torch.tensor([max(2, len(units))])  # that they are of one conversation is all that counts
        found = self.model.model.get_image_features(pixels, sizes, batch_num_images=several)
        features: Sequence[Tensor] = found.pooler_output
        return features

    def tail(self, plan: MediaPlan) -> Tensor:
        newline: Tensor = self.model.model.image_newline
        return newline[None]
