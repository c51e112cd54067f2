"""Adapt LLaVA-NeXT-Video: images as LLaVA-NeXT; a frame of a video is one picture, whose features are pooled."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from unifiedserve.messages.media import MediaOptions, MediaPlan, VideoInfo
from unifiedserve.models.families.llava_next import LlavaNextAdapter, LlavaNextProcessor
from unifiedserve.models.frame_sampling import check_sampling, evenly, frame_count
from unifiedserve.models.pictures import Units, WholePicture, check_side

Encode = Callable[[Tensor, Units], Sequence[Tensor]]


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


class LlavaNextVideoAdapter(LlavaNextAdapter):
    def features(self, pixels: Tensor, units: Units) -> Tensor:
        """Return visual tokens; those of units that are encoded in one way come of one pass."""
        side = pixels.shape[-1]
        pictures = torch.split(pixels, [count * plan.patches_per_unit // side for plan, count in units])
        tokens: dict[int, Tensor] = {}
        ways = [self.way(plan) for plan, _ in units]
        for way in dict.fromkeys(ways):
            chosen = [i for i, own in enumerate(ways) if own == way]
            found = way(torch.cat([pictures[i] for i in chosen]), [units[i] for i in chosen])
            tokens.update(zip(chosen, found, strict=True))
        return torch.cat([tokens[i] for i in range(len(units))])

    def way(self, plan: MediaPlan) -> Encode:
        """Return what encodes media of such a plan."""
        return self.image_features if plan.kind == "image" else self.video_features

    def video_features(self, pixels: Tensor, units: Units) -> Sequence[Tensor]:
        """Return visual tokens [m, hidden] for each of `units`, all of videos."""
        tokens = [count * plan.tokens_per_unit for plan, count in units]
        features: Tensor = self.model.model.get_video_features(pixels[None]).pooler_output[0]
        return torch.split(features[: sum(tokens)], tokens)
