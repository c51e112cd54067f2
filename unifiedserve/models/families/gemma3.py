"""Adapt Gemma 3: layers with a window, images whose tokens see each other.

Its models without images and Gemma 2 are included.
"""

from pathlib import Path
from typing import Any, ClassVar

from flashcodec import RGBLayout
from unifiedserve.messages.media import MediaOptions, MediaPlan
from unifiedserve.models.pictures import PictureProcessor, check_side, interpolation_of, square_side


class Gemma3Processor(PictureProcessor):
    image_processors: ClassVar[frozenset[str]] = frozenset({"Gemma3ImageProcessor"})
    #: without pan and scan its fields change nothing
    image_fields: ClassVar[frozenset[str]] = frozenset(
        {"pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops", "pan_and_scan_min_ratio_to_activate"}
    )

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        tokens = self.tokenizer
        self.placeholders = {"image": tokens.boi_token}
        self.visual_ids = {"image": config.image_token_id}
        self._text = f"\n\n{tokens.boi_token}{tokens.image_token}{tokens.eoi_token}\n\n"
        self._layout = RGBLayout(self.side, self.side, interpolation=interpolation_of(self.image_rules))

    def picture_side(self) -> int:
        side = square_side(self.image_rules)
        check_side(self.image_rules, "size", side, self.config)
        return side

    def media_text(self, plan: MediaPlan) -> str:
        return self._text

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        return MediaPlan(
            kind="image",
            layout=self._layout,
            units=1,
            patches_per_unit=self.side,
            tokens_per_unit=self.config.mm_tokens_per_image,
        )
