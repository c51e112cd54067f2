"""LLaVA-1.5 and models of its kind: one picture an image, its middle or padded to a square."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unifiedserve.models.media import MediaOptions, MediaPlan
from unifiedserve.models.pictures import (
    PictureAdapter,
    PictureProcessor,
    Units,
    picture_tokens,
    refuse_pixel_limits,
    refuse_video_options,
    whole_picture,
)


class LlavaProcessor(PictureProcessor):
    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self.picture_token("image", self.tokenizer.decode([config.image_token_id]))

    def picture_side(self) -> int:
        rules = self.image_rules
        side: int = (rules.crop_size if rules.do_center_crop else rules.size).height
        return side

    def plan_image(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        options.check()
        refuse_video_options(options)
        refuse_pixel_limits(options)
        rules = self.image_rules.to_dict()
        red, green, blue = (int(255 * mean) for mean in rules["image_mean"])
        return MediaPlan(
            kind="image",
            layout=whole_picture(rules, height, width, (red, green, blue) if rules.get("do_pad") else None),
            units=1,
            patches_per_unit=self.side,
            tokens_per_unit=picture_tokens(self.config, self.side),
        )


class LlavaAdapter(PictureAdapter):
    def __init__(self, config: Any, *args: Any) -> None:
        super().__init__(config, *args)
        self.visual_ids = frozenset({config.image_token_id})

    def features(self, pixels: Tensor, units: Units) -> Tensor:
        features: Sequence[Tensor] = self.model.model.get_image_features(pixels).pooler_output
        return torch.cat(list(features))
