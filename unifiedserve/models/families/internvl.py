"""Adapt InternVL3 (and 2.5) as in transformers: images in tiles by their aspect ratio, frames of videos whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from flashcodec import RGBLayout, TileLayout
from unifiedserve.messages.media import MediaOptions, MediaPlan, PromptError, VideoInfo
from unifiedserve.models.frame_sampling import frame_count, spread
from unifiedserve.models.pictures import PictureProcessor, check_side, interpolation_of, square_side


class InternVLProcessor(PictureProcessor):
    image_processors: ClassVar[frozenset[str]] = frozenset({"GotOcr2ImageProcessor"})
    #: images are always cut, and tiles have their size then
    image_fields: ClassVar[frozenset[str]] = frozenset({"crop_to_patches", "min_patches", "max_patches", "do_resize"})
    video_fields: ClassVar[frozenset[str]] = frozenset({"fps", "num_frames", "initial_shift"})

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self._start, self._end = self.tokenizer.start_image_token, self.tokenizer.end_image_token
        self._token = self.tokenizer.context_image_token
        self.placeholders = {"image": self._token, "video": self.tokenizer.video_token}
        self.visual_ids = dict.fromkeys(self.placeholders, config.image_token_id)
        least, most = self.image_rules["min_patches"], self.image_rules["max_patches"]
        if not (isinstance(least, int) and isinstance(most, int) and 1 <= least <= most):
            raise self.image_rules.error("min_patches", f"from 1 to max_patches, {most}")
        shift = self.video_rules["initial_shift"]
        if not (isinstance(shift, int | float) and shift >= 0):
            raise self.video_rules.error("initial_shift", "a number of frames, or true")
        self._image_filter = interpolation_of(self.image_rules)
        self._frame = RGBLayout(self.side, self.side, interpolation=interpolation_of(self.video_rules))

    def picture_side(self) -> int:
        for rules in (self.image_rules, self.video_rules):
            check_side(rules, "size", square_side(rules), self.config)
        return square_side(self.image_rules)

    def media_text(self, plan: MediaPlan) -> str:
        picture = f"{self._start}{self._token}{self._end}"
        if plan.kind == "image":
            return picture
        return "\n".join(f"Frame{i + 1}: {picture}" for i in range(plan.units))

    def runs(self, plan: MediaPlan) -> list[int]:
        return [plan.tokens] if plan.kind == "image" else [plan.tokens_per_unit] * plan.units

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        rules = self.image_rules
        layout = TileLayout.internvl(height, width, self.side, rules["min_patches"], rules["max_patches"])
        return self._plan("image", (), replace(layout, interpolation=self._image_filter), layout.tiles)

    def video_plan(self, video: VideoInfo, options: MediaOptions) -> MediaPlan:
        count = frame_count(self.video_rules, video, options)
        shift = self.video_rules["initial_shift"]
        middle = video.num_frames / count / 2
        indices = spread(video.num_frames, count, middle if shift is True else float(shift))
        if not indices:
            raise PromptError(f"the video has {video.num_frames} frames, which all lie before the model's first one")
        return self._plan("video", indices, self._frame, len(indices))

    def _plan(self, kind: Any, indices: tuple[int, ...], layout: TileLayout | RGBLayout, units: int) -> MediaPlan:
        patch = self.config.vision_config.patch_size[0]
        return MediaPlan(
            kind=kind,
            frame_indices=indices,
            layout=layout,
            units=units,
            patches_per_unit=self.side,
            tokens_per_unit=int((self.side // patch) ** 2 * self.config.downsample_ratio**2),
        )
