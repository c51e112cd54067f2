"""Adapt Llama 3.2 Vision: layers of cross-attention read an image's tiles.

In the prompt each image is a single token.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from flashcodec import TileLayout
from unifiedserve.messages.media import MediaOptions, MediaPlan
from unifiedserve.models.pictures import PictureProcessor, check_side, interpolation_of, square_side


class MllamaProcessor(PictureProcessor):
    keeps_visual_rows: ClassVar[bool] = True
    image_processors: ClassVar[frozenset[str]] = frozenset({"MllamaImageProcessor"})
    image_fields: ClassVar[frozenset[str]] = frozenset({"max_image_tiles"})

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self.image_rules.require("max_image_tiles", config.vision_config.max_num_tiles)
        self._interpolation = interpolation_of(self.image_rules)
        self.picture_token("image", self.tokenizer.convert_ids_to_tokens(config.image_token_index))
        self.visual_dim = 2 * len(config.text_config.cross_attention_layers) * _kv_width(config)

    def picture_side(self) -> int:
        side = square_side(self.image_rules)
        check_side(self.image_rules, "size", side, self.config)
        return side

    def runs(self, plan: MediaPlan) -> list[int]:
        return [1]

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        most = self.config.vision_config.max_num_tiles
        layout = replace(TileLayout.mllama(height, width, self.side, most), interpolation=self._interpolation)
        return MediaPlan(
            kind="image",
            layout=layout,
            units=1,
            patches_per_unit=self.side * layout.tiles,
            tokens_per_unit=most * tile_tokens(self.config),  # tiles that are not there can be attended to, too
        )


def _kv_width(config: Any) -> int:
    text = config.text_config
    return int(text.num_key_value_heads * (text.hidden_size // text.num_attention_heads))


def tile_tokens(config: Any) -> int:
    """Return the tokens of a tile: its patches and a class token."""
    vision = config.vision_config
    return int((vision.image_size // vision.patch_size) ** 2 + 1)
