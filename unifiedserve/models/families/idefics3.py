"""Adapt Idefics3: an image as tiles with their place in the text, then the whole of it.

Each tile takes as many tokens.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from unifiedserve.messages.layouts import View, Views
from unifiedserve.messages.media import ExpandedPrompt, MediaKind, MediaOptions, MediaPlan
from unifiedserve.models.pictures import PictureProcessor, check_side, filter_of
from unifiedserve.models.processor_rules import Rules
from unifiedserve.models.text import NO_LIMIT

LARGEST_SIDE = 4096  # pixels of a resized picture's side at most, whatever the checkpoint's rules say

Size = tuple[int, int]


class Idefics3Processor(PictureProcessor):
    image_processors: ClassVar[frozenset[str]] = frozenset({"Idefics3ImageProcessor", "SmolVLMImageProcessor"})
    image_fields: ClassVar[frozenset[str]] = frozenset(
        {"do_resize", "do_image_splitting", "max_image_size", "return_row_col_info"}
    )

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self._image = self.tokenizer.decode([config.image_token_id])
        self.picture_token("image", self._image)
        check_first_size(self.image_rules, "size", self.image_rules["size"])
        self._filter = filter_of(self.image_rules)
        self._around, self._global = "<fake_token_around_image>", "<global-img>"
        self._whole_picture = f"{self._around}{self._global}{self._image}{self._around}"
        patches = (self.side // config.vision_config.patch_size) ** 2
        self._tokens_per_tile = patches // config.scale_factor**2

    def picture_side(self) -> int:
        side = tile_side(self.image_rules)
        check_side(self.image_rules, "max_image_size", side, self.config)
        return side

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        media: Sequence[MediaPlan],
        limit: int = NO_LIMIT,
        /,
        **template_kwargs: Any,
    ) -> ExpandedPrompt:
        """Make the prompt as any family does, with strings as one part: the template knows contents in parts only."""
        return super().prompt([_in_parts(message) for message in messages], media, limit, **template_kwargs)

    def media_text(self, plan: MediaPlan) -> str:
        whole = self._whole_picture
        if plan.units == 1:
            return whole
        grid = plan.views[0]
        rows = (
            "".join(f"{self._around}<row_{row + 1}_col_{column + 1}>{self._image}" for column in range(grid.columns))
            for row in range(grid.rows)
        )
        return "".join(f"{row}\n" for row in rows) + f"\n{whole}"

    def runs(self, plan: MediaPlan) -> list[int]:
        return [plan.tokens_per_unit] * plan.units

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        rules, tile = self.image_rules, (self.side, self.side)
        sizes: tuple[Size, ...] = (first_size(height, width, rules["size"]),) if rules["do_resize"] else ()
        if not rules["do_image_splitting"]:
            views: tuple[View, ...] = (View((*sizes, tile)),)
        else:
            rows, columns = grid_of(*(sizes[0] if sizes else (height, width)), self.side)
            sizes += ((rows * self.side, columns * self.side),)
            views = (View(sizes, rows, columns),)
            if rows * columns > 1:
                views += (View((*sizes, tile)),)
        return self.plan("image", (), Views(height, width, views, self._filter))

    def plan(self, kind: MediaKind, indices: tuple[int, ...], layout: Views, **more: Any) -> MediaPlan:
        """Make the plan of an image or a video. Its units are tiles of the image or of the frames."""
        return MediaPlan(
            kind=kind,
            frame_indices=indices,
            layout=layout,
            units=layout.count * max(1, len(indices)),
            patches_per_unit=self.side,
            tokens_per_unit=self._tokens_per_tile,
            **more,
        )


def tile_side(rules: Rules) -> int:
    """Return the side of a tile; raises ConfigError for rules without one."""
    size = rules["max_image_size"]
    if not (isinstance(size, Mapping) and size.get("longest_edge")):
        raise rules.error("max_image_size", "the longest_edge of a tile")
    return int(size["longest_edge"])


def check_first_size(rules: Rules, name: str, size: Any) -> None:
    """Raise ConfigError for a size, from the field `name`, that `first_size` does not understand."""
    known = isinstance(size, Mapping) and (size.get("longest_edge") or (size.get("height") and size.get("width")))
    if not known:
        raise rules.error(name, "a longest_edge, or height and width")


def first_size(height: int, width: int, size: Mapping[str, int]) -> Size:
    """Return the size of the first resize: the longer side is the rules' `longest_edge`, the other one even."""
    longest = size.get("longest_edge")
    if not longest:
        return size["height"], size["width"]
    ratio = width / height
    if width >= height:
        height = int(longest / ratio)
        return _bounded(max(height + height % 2, 1), longest)
    width = int(longest * ratio)
    return _bounded(longest, max(width + width % 2, 1))


def _bounded(height: int, width: int) -> Size:
    ratio = width / height
    if width >= height and width > LARGEST_SIDE:
        return max(int(LARGEST_SIDE / ratio), 1), LARGEST_SIDE
    if height > width and height > LARGEST_SIDE:
        return LARGEST_SIDE, max(int(LARGEST_SIDE * ratio), 1)
    return height, width


def grid_of(height: int, width: int, side: int) -> Size:
    """Return the rows and columns of tiles that hold a picture: the longer side's first, the other by the ratio."""
    ratio = width / height
    if width >= height:
        columns = math.ceil(width / side)
        return math.ceil(int(columns * side / ratio) / side), columns
    rows = math.ceil(height / side)
    return rows, math.ceil(int(rows * side * ratio) / side)


def _in_parts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    content = message.get("content")
    return {**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message
