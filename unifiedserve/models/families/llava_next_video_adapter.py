"""Run the modules of the family in `llava_next_video.py`."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from unifiedserve.messages.media import MediaPlan
from unifiedserve.models.families.llava_next_adapter import LlavaNextAdapter
from unifiedserve.models.pictures import Units

Encode = Callable[[Tensor, Units], Sequence[Tensor]]


class LlavaNextVideoAdapter(LlavaNextAdapter):
    def features(self, pixels: Tensor, units: Units) -> Tensor:
        """Return visual tokens; those of units that are encoded in one way come of one pass."""
        side = pixels.shape[-1]
        pictures = torch.split(pixels, [count * plan.patches_per_unit // side for plan, count in units])
        tokens: dict[int, Tensor] = {}
        ways = [self.way(plan) for plan, _ in units]
        for way in dict.fromkeys(ways):
            chosen = [i for i, own in enumerate(ways) if own == way]
            found = way(torch.cat([pictures[i] for i in chosen]), [units[i] for i in chosen])
            tokens.update(zip(chosen, found, strict=True))
        return torch.cat([tokens[i] for i in range(len(units))])

    def way(self, plan: MediaPlan) -> Encode:
        """Return what encodes media of such a plan."""
        return self.image_features if plan.kind == "image" else self.video_features

    def video_features(self, pixels: Tensor, units: Units) -> Sequence[Tensor]:
        """Return visual tokens [m, hidden] for each of `units`, all of videos."""
        tokens = [count * plan.tokens_per_unit for plan, count in units]
        features: Tensor = self.model.model.get_video_features(pixels[None]).pooler_output[0]
        return torch.split(features[: sum(tokens)], tokens)
