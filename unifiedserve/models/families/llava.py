"""Adapt LLaVA-1.5 and models of its kind: one picture an image, its middle or padded to a square."""

from pathlib import Path
from typing import Any, ClassVar

from unifiedserve.messages.media import MediaOptions, MediaPlan
from unifiedserve.models.pictures import (
    PictureProcessor,
    WholePicture,
    check_picture_tokens,
    check_side,
    mean_colour,
    picture_tokens,
)

SQUARES = "LlavaImageProcessor"  # of all, the one that pads pictures to squares
OTHERS = "CLIPImageProcessor", "SiglipImageProcessor"


class LlavaProcessor(PictureProcessor):
    image_processors: ClassVar[frozenset[str]] = frozenset({SQUARES, *OTHERS})
    image_fields: ClassVar[frozenset[str]] = frozenset({"do_center_crop"})

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        check_picture_tokens(model_dir, config, self.side)
        self.picture_token("image", self.tokenizer.decode([config.image_token_id]))

    def picture_side(self) -> int:
        rules, square = self.image_rules, None
        if rules["do_pad"] and rules.name == SQUARES:
            square = mean_colour(rules)
        self._picture = WholePicture(rules, square)
        field = "crop_size" if rules["do_center_crop"] else "size"
        check_side(rules, field, self._picture.side, self.config)
        return self._picture.side

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        return MediaPlan(
            kind="image",
            layout=self._picture.layout(height, width),
            units=1,
            patches_per_unit=self.side,
            tokens_per_unit=picture_tokens(self.config, self.side),
        )
