"""LLaVA-1.5 and models of its kind: one picture an image, the middle of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from flashcodec.geometry import shortest_edge_size
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.models.media import MediaOptions, MediaPlan, Picture
from unifiedserve.models.pictures import (
    PictureAdapter,
    PictureProcessor,
    Units,
    refuse_pixel_limits,
    refuse_video_options,
)

WITH_CLASS_TOKEN = {"clip_vision_model"}


class LlavaProcessor(PictureProcessor):
    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        if getattr(self.image_rules, "do_pad", False):
            raise ConfigError(f"{model_dir}: images that are padded to squares are not supported")
        self.picture_token("image", self.tokenizer.decode([config.image_token_id]))

    def picture_side(self) -> int:
        rules = self.image_rules
        side: int = (rules.crop_size if rules.do_center_crop else rules.size).height
        return side

    def plan_image(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        options.check()
        refuse_video_options(options)
        refuse_pixel_limits(options)
        size = self.image_rules.size
        if size.shortest_edge:
            rows, columns = shortest_edge_size(height, width, size.shortest_edge)
        else:
            rows, columns = size.height, size.width
        return MediaPlan(
            kind="image",
            layout=Picture(rows, columns, (self.side, self.side)),
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


def picture_tokens(config: Any, side: int) -> int:
    """Visual tokens of a picture, by the rule with which transformers selects features of the encoder."""
    vision = config.vision_config
    tokens: int = (side // vision.patch_size) ** 2
    tokens += vision.model_type in WITH_CLASS_TOKEN
    tokens -= config.vision_feature_select_strategy == "default"
    return tokens
