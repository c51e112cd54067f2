"""InternVL3 (and 2.5) as in transformers: images in tiles by their aspect ratio, frames of videos whole."""

from pathlib import Path
from typing import Any

from flashcodec import RGBLayout, TileLayout
from unifiedserve.messages.media import MediaOptions, MediaPlan, VideoInfo
from unifiedserve.models.frame_sampling import frame_count, spread
from unifiedserve.models.pictures import PictureProcessor


class InternVLProcessor(PictureProcessor):
    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self._start, self._end = self.tokenizer.start_image_token, self.tokenizer.end_image_token
        self._token = self.tokenizer.context_image_token
        self.placeholders = {"image": self._token, "video": self.tokenizer.video_token}
        self.visual_ids = dict.fromkeys(self.placeholders, config.image_token_id)

    def picture_side(self) -> int:
        side: int = self.image_rules.size.height
        return side

    def media_text(self, plan: MediaPlan) -> str:
        picture = f"{self._start}{self._token}{self._end}"
        if plan.kind == "image":
            return picture
        return "\n".join(f"Frame{i + 1}: {picture}" for i in range(plan.units))

    def runs(self, plan: MediaPlan) -> list[int]:
        return [plan.tokens] if plan.kind == "image" else [plan.tokens_per_unit] * plan.units

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        rules = self.image_rules
        layout = TileLayout.internvl(height, width, self.side, rules.min_patches, rules.max_patches)
        return self._plan("image", (), layout, layout.tiles)

    def video_plan(self, video: VideoInfo, options: MediaOptions) -> MediaPlan:
        count = frame_count(self.video_rules, video, options)
        shift = self.video_rules.get("initial_shift", True)
        middle = video.num_frames / count / 2
        indices = spread(video.num_frames, count, middle if shift is True else float(shift))
        return self._plan("video", indices, RGBLayout(self.side, self.side), count)

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
