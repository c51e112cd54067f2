"""Adapt LLaVA-NeXT-Video: images as LLaVA-NeXT; a frame of a video is one picture, whose features are pooled."""

from pathlib import Path
from typing import Any, ClassVar

from unifiedserve.messages.media import MediaOptions, MediaPlan, VideoInfo
from unifiedserve.models.families.llava_next import LlavaNextProcessor
from unifiedserve.models.frame_sampling import check_sampling, evenly, frame_count
from unifiedserve.models.pictures import WholePicture, check_side


class LlavaNextVideoProcessor(LlavaNextProcessor):
    #: frames where neither the request nor the checkpoint says how many: its context of 4096 holds not many more
    default_frames = 16
    video_fields: ClassVar[frozenset[str]] = frozenset({"do_center_crop", "fps", "num_frames"})

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self.picture_token("video", self.tokenizer.decode([config.video_token_id]))
        rules = self.video_rules
        self._frame = WholePicture(rules)
        check_side(rules, "crop_size" if rules["do_center_crop"] else "size", self._frame.side, config)
        check_sampling(rules)

    def video_plan(self, video: VideoInfo, options: MediaOptions) -> MediaPlan:
        count = frame_count(self.video_rules, video, options, self.default_frames)
        return MediaPlan(
            kind="video",
            frame_indices=evenly(video.num_frames, count),
            layout=self._frame.layout(video.height, video.width),
            units=count,
            patches_per_unit=self.side,
            tokens_per_unit=self.pooled_side() ** 2,
            tail_tokens=self.tail_tokens(),
        )

    def pooled_side(self) -> int:
        """Return the number of features along a side of a frame."""
        return self.patches // int(self.config.spatial_pool_stride)

    def tail_tokens(self) -> int:
        return 0
