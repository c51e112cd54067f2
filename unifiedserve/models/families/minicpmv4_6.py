"""Adapt MiniCPM-V 4.6: an image whole, then in slices of about its aspect ratio.

A unit is an image or a frame with these.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from unifiedserve.messages.layouts import View, Views
from unifiedserve.messages.media import MediaKind, MediaOptions, MediaPlan, VideoInfo
from unifiedserve.models.families.minicpm_rules import Size, divisible, fitted, sample, slices
from unifiedserve.models.pictures import PictureProcessor, filter_of
from unifiedserve.models.processor_rules import Rules

SLICES = frozenset({"max_slice_nums", "scale_resolution", "patch_size", "slice_mode", "downsample_mode"})


class MiniCPMProcessor(PictureProcessor):
    image_processors: ClassVar[frozenset[str]] = frozenset({"MiniCPMV4_6ImageProcessor"})
    image_fields: ClassVar[frozenset[str]] = SLICES | {"use_image_id"}
    #: frames are chosen by their times, whatever `fps` and `num_frames` say
    video_fields: ClassVar[frozenset[str]] = SLICES | {"max_num_frames", "fps", "num_frames"}

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self._rules: dict[MediaKind, Rules] = {"image": self.image_rules, "video": self.video_rules}
        for rules in self._rules.values():
            rules.require("downsample_mode", config.downsample_mode)
            rules.require("patch_size", config.vision_config.patch_size)
        self._filters = {kind: filter_of(rules) for kind, rules in self._rules.items()}
        self.patch_row_bytes = 3 * self.side**2
        self._merged = 2 if config.downsample_mode == "4x" else 4  # patches a side that become one visual token
        self.picture_token("image", self.tokenizer.image_token)
        self.picture_token("video", self.tokenizer.video_token)

    def picture_side(self) -> int:
        return int(self.config.vision_config.patch_size)

    def media_texts(self, media: Sequence[MediaPlan]) -> list[str]:
        """Return the texts of the media: images and videos are numbered, each kind on its own."""
        texts, numbers = [], {"image": 0, "video": 0}
        for plan in media:
            tag = f"{self.tokenizer.image_id_start_token}{numbers[plan.kind]}{self.tokenizer.image_id_end_token}"
            texts.append((tag if self.image_rules["use_image_id"] else "") + self.media_text(plan))
            numbers[plan.kind] += 1
        return texts

    def media_text(self, plan: MediaPlan) -> str:
        names, token = self.tokenizer, self.placeholders[plan.kind]
        unit = f"{names.image_start_token}{token}{names.image_end_token}"
        for grid in plan.views[1:]:
            row = f"{names.slice_start_token}{token}{names.slice_end_token}" * grid.columns
            unit += "\n".join([row] * grid.rows)
        return unit * plan.units

    def runs(self, plan: MediaPlan) -> list[int]:
        parts = [height * width // (self.side * self._merged) ** 2 for height, width in part_sizes(plan)]
        return parts * plan.units

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        return self._plan("image", height, width)

    def video_plan(self, video: VideoInfo, options: MediaOptions) -> MediaPlan:
        indices = sample(video, options, self.video_rules["max_num_frames"])
        return self._plan("video", video.height, video.width, indices)

    def _plan(self, kind: MediaKind, height: int, width: int, indices: tuple[int, ...] = ()) -> MediaPlan:
        rules, step = self._rules[kind], self.side * self._merged
        resolution = rules["scale_resolution"]
        grid = slices(height, width, rules["max_slice_nums"], resolution) if rules["slice_mode"] else None
        views = [View((fitted(height, width, resolution, step, upscale=grid is None),))]
        if grid is not None:
            part_height, part_width = divisible(height, grid[0]) / grid[0], divisible(width, grid[1]) / grid[1]
            part = fitted(part_height, part_width, resolution, step, upscale=True)
            views.append(View(((part[0] * grid[0], part[1] * grid[1]),), *grid))
        layout = Views(height, width, tuple(views), self._filters[kind])
        pixels = sum(math.prod(view.sizes[-1]) for view in views)
        return MediaPlan(
            kind=kind,
            frame_indices=indices,
            layout=layout,
            units=max(1, len(indices)),
            patches_per_unit=pixels // self.side**2,
            tokens_per_unit=pixels // step**2,
        )


def part_sizes(plan: MediaPlan) -> list[Size]:
    """Return (height, width) of the pictures of a unit, in their order."""
    parts = []
    for view in plan.views:
        height, width = view.sizes[-1]
        parts += [(height // view.rows, width // view.columns)] * view.count
    return parts
