"""Adapt LLaVA-NeXT: an image whole and in tiles. These have that of several resolutions which suits it best."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from flashcodec import TileLayout
from unifiedserve.errors import ConfigError
from unifiedserve.messages.media import MediaOptions, MediaPlan
from unifiedserve.models.pictures import (
    PictureProcessor,
    check_picture_tokens,
    check_side,
    interpolation_of,
    picture_tokens,
    square_side,
)


class LlavaNextProcessor(PictureProcessor):
    image_processors: ClassVar[frozenset[str]] = frozenset({"LlavaNextImageProcessor"})
    #: tiles have their size before they would be resized and cropped again
    image_fields: ClassVar[frozenset[str]] = frozenset({"do_resize", "do_center_crop", "image_grid_pinpoints"})

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        vision = config.vision_config
        self.patches: int = vision.image_size // vision.patch_size  # patches along a side
        self.resolutions = [tuple(each) for each in config.image_grid_pinpoints]
        _check(model_dir, self)
        self._filter = interpolation_of(self.image_rules)
        self.picture_token("image", self.tokenizer.decode([config.image_token_id]))

    def picture_side(self) -> int:
        rules = self.image_rules
        edge = rules["size"].get("shortest_edge") if isinstance(rules["size"], Mapping) else None
        side = int(edge) if edge and len(rules["size"]) == 1 else square_side(rules)
        check_side(rules, "size", side, self.config)
        if rules["do_center_crop"] or rules["crop_size"]:
            check_side(rules, "crop_size", square_side(rules, "crop_size"), self.config)
        return side

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        layout = TileLayout.anyres(height, width, self.resolutions, self.side)
        layout = replace(layout, interpolation=self._filter)
        rows, columns = self.tile_features(*self._unpadded(height, width, layout.rows, layout.columns))
        return MediaPlan(
            kind="image",
            layout=layout,
            units=1,
            patches_per_unit=self.side * layout.tiles,
            tokens_per_unit=self.patches**2 + rows * (columns + 1),
            source=(height, width),
        )

    def tile_features(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the features of rows × columns tiles that the model keeps; a newline follows each row."""
        return rows, columns

    def _unpadded(self, height: int, width: int, tile_rows: int, tile_columns: int) -> tuple[int, int]:
        """Return rows and columns of the features that show the image, not its border.

        Transformers' rounding counts.
        """
        rows, columns = tile_rows * self.patches, tile_columns * self.patches
        if width / height > columns / rows:
            filled = int(round(height * (columns / width), 7))
            return rows - (rows - filled) // 2 * 2, columns
        filled = int(round(width * (rows / height), 7))
        return rows, columns - (columns - filled) // 2 * 2


def _check(model_dir: Path, processor: LlavaNextProcessor) -> None:
    """Raise ConfigError where the rules for images and the model do not fit each other."""
    rules, config = processor.image_rules, processor.config
    if sorted(map(tuple, rules["image_grid_pinpoints"] or ())) != sorted(processor.resolutions):
        raise rules.error("image_grid_pinpoints", "those of config.json")
    if picture_tokens(config, processor.side) != processor.patches**2:
        strategy = config.vision_feature_select_strategy
        raise ConfigError(f"{model_dir}: vision_feature_select_strategy {strategy!r} gives no grid of features")
    check_picture_tokens(model_dir, config, processor.side)
