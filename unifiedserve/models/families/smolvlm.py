"""Adapt SmolVLM: Idefics3 that reads videos, too, as frames with their times in the text."""

import importlib
from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from unifiedserve.messages.layouts import View, Views
from unifiedserve.messages.media import ALL_FRAMES, MediaOptions, MediaPlan, VideoInfo
from unifiedserve.models.chat import ChatTemplate
from unifiedserve.models.families.idefics3 import (
    LARGEST_SIDE,
    Idefics3Processor,
    check_first_size,
    first_size,
    tile_side,
)
from unifiedserve.models.frame_sampling import known_fps
from unifiedserve.models.number_words import in_words
from unifiedserve.models.pictures import filter_of

SAMPLING = {"max_frames": 64, "fps": 1}  # the published checkpoints', where a checkpoint says nothing
SKIPPED_SECONDS = 1  # seconds skipped at either end of a long video


class SmolVLMProcessor(Idefics3Processor):
    video_fields: ClassVar[frozenset[str]] = frozenset({"fps", "num_frames", "max_image_size", "video_sampling"})

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        self.placeholders = {**self.placeholders, "video": "<video>"}
        self.visual_ids = {**self.visual_ids, "video": config.image_token_id}
        self._texts: Any = importlib.import_module("transformers.models.smolvlm.processing_smolvlm")
        self._video_chat = copy(self.chat)
        self._video_chat.template = chat_template or self._texts.DEFAULT_CHAT_TEMPLATE
        self._read_video_rules()

    def _read_video_rules(self) -> None:
        """Read the rules for videos; raises ConfigError for those that the encoder cannot follow."""
        rules = self.video_rules
        sampling = rules["video_sampling"] or {}
        given = {"max_frames": rules["num_frames"], "fps": rules["fps"], **sampling}
        self._sampling = {name: given.get(name) or default for name, default in SAMPLING.items()}
        size = rules["size"] if rules.has("size") else sampling.get("video_size", rules["size"])
        check_first_size(rules, "size", size)
        longest = size.get("longest_edge")
        self._video_size = {**size, "longest_edge": longest and min(longest, LARGEST_SIDE)}
        self._video_filter = filter_of(rules)
        if tile_side(rules) != self.side:
            raise rules.error("max_image_size", f"that of images, {self.side}")

    def template_for(self, media: Sequence[MediaPlan]) -> ChatTemplate:
        """Return transformers' own template for videos, which published ones leave out, unless one was given."""
        return self._video_chat if any(plan.kind == "video" for plan in media) else self.chat

    def media_texts(self, media: Sequence[MediaPlan]) -> Sequence[str]:
        """Return the texts of the media; each video's tells the longest one's frames, as in transformers."""
        longest = max((plan.units for plan in media if plan.kind == "video"), default=0)
        return [self.media_text(plan) if plan.kind == "image" else self._video_text(plan, longest) for plan in media]

    def _video_text(self, plan: MediaPlan, frames: int) -> str:
        duration = str(timedelta(seconds=int(plan.duration)))
        text: str = self._texts.DEFAULT_VIDEO_INTRO.format(frame_count=in_words(frames), video_duration=duration)
        for seconds in plan.timestamps:
            time = f"{int(seconds // 60):02d}:{int(seconds % 60):02d}"
            text += self._texts.FRAME_TIMESTAMP_MESSAGE.format(timestamp=time) + self._whole_picture
        text += self._texts.DEFAULT_MEDIA_OUTTRO
        return text

    def video_plan(self, video: VideoInfo, options: MediaOptions) -> MediaPlan:
        indices = sample(video, options, **self._sampling)
        sizes = (first_size(video.height, video.width, self._video_size), (self.side, self.side))
        layout = Views(video.height, video.width, (View(sizes),), self._video_filter)
        fps = known_fps(video)
        times = tuple(index / fps for index in indices)
        return self.plan("video", indices, layout, timestamps=times, duration=video.duration or times[-1])


def sample(video: VideoInfo, options: MediaOptions, max_frames: int, fps: float) -> tuple[int, ...]:
    """Spread frames evenly, `fps` a second but at most `num_frames`, without a long video's ends; or take all."""
    total, fps, every = video.num_frames, options.fps or fps, options.num_frames == ALL_FRAMES
    duration = video.duration or total / known_fps(video)
    most = (not every and options.num_frames) or options.max_frames or max_frames
    count = total if every else min(round(fps * duration), most)
    count = max(1, min(count, total, options.max_frames or total))
    first, last = 0, total - 1
    if not every and duration - 2 * SKIPPED_SECONDS > most * fps:
        skipped = SKIPPED_SECONDS * known_fps(video)
        first, last = int(skipped), min(int(total - skipped), last)
    if first >= last:
        first, last = 0, total - 1
    indices: list[int] = np.unique(np.linspace(first, last, count, dtype=int)).tolist()
    return tuple(indices)
