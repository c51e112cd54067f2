"""LLaVA-NeXT-Video: images as LLaVA-NeXT; a frame of a video is one picture, whose features are pooled."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.messages.media import MediaOptions, MediaPlan, VideoInfo
from unifiedserve.models.families.llava_next import LlavaNextAdapter, LlavaNextProcessor
from unifiedserve.models.frame_sampling import evenly, frame_count
from unifiedserve.models.pictures import Units, whole_picture


class LlavaNextVideoProcessor(LlavaNextProcessor):
    #: frames where neither the request nor the checkpoint says how many: its context of 4096 holds not many more
    default_frames = 16

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self.picture_token("video", self.tokenizer.decode([config.video_token_id]))
        self.frame_rules = {**self.image_rules.to_dict(), **self.video_rules}
        frame = whole_picture(self.frame_rules, self.side, self.side)
        if (frame.crop or (frame.height, frame.width)) != (self.side, self.side):
            raise ConfigError(f"{model_dir}: frames of videos differ from the encoder's pictures, {self.side} pixels")

    def video_plan(self, video: VideoInfo, options: MediaOptions) -> MediaPlan:
        count = frame_count(self.video_rules, video, options, self.default_frames)
        return MediaPlan(
            kind="video",
            frame_indices=evenly(video.num_frames, count),
            layout=whole_picture(self.frame_rules, video.height, video.width),
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


class LlavaNextVideoAdapter(LlavaNextAdapter):
    def features(self, pixels: Tensor, units: Units) -> Tensor:
        """Return visual tokens: of all images together by `image_features`, of all videos by `video_features`."""
        side = pixels.shape[-1]
        pictures = torch.split(pixels, [count * plan.patches_per_unit // side for plan, count in units])
        tokens: dict[int, Tensor] = {}
        for kind, encode in (("image", self.image_features), ("video", self.video_features)):
            chosen = [i for i, (plan, _) in enumerate(units) if plan.kind == kind]
            if chosen:
                found = encode(torch.cat([pictures[i] for i in chosen]), [units[i] for i in chosen])
                tokens.update(zip(chosen, found, strict=True))
        return torch.cat([tokens[i] for i in range(len(units))])

    def video_features(self, pixels: Tensor, units: Units) -> Sequence[Tensor]:
        """Return visual tokens [m, hidden] for each of `units`, all of videos."""
        tokens = [count * plan.tokens_per_unit for plan, count in units]
        features: Tensor = self.model.model.get_video_features(pixels[None]).pooler_output[0]
        return torch.split(features[: sum(tokens)], tokens)
