"""LLaVA-1.5 and models of its kind: one picture an image, its middle or padded to a square."""

from pathlib import Path
from typing import Any

from unifiedserve.messages.media import MediaOptions, MediaPlan
from unifiedserve.models.pictures import PictureProcessor, check_picture_tokens, picture_tokens, whole_picture


class LlavaProcessor(PictureProcessor):
    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        check_picture_tokens(model_dir, config, self.side)
        self.picture_token("image", self.tokenizer.decode([config.image_token_id]))

    def picture_side(self) -> int:
        rules = self.image_rules
        side: int = (rules.crop_size if rules.do_center_crop else rules.size).height
        return side

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        rules = self.image_rules.to_dict()
        red, green, blue = (int(255 * mean) for mean in rules["image_mean"])
        return MediaPlan(
            kind="image",
            layout=whole_picture(rules, height, width, (red, green, blue) if rules.get("do_pad") else None),
            units=1,
            patches_per_unit=self.side,
            tokens_per_unit=picture_tokens(self.config, self.side),
        )
