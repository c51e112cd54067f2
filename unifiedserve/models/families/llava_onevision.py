"""Adapt LLaVA-OneVision: many tiles, whose features are scaled down to a limit; a video ends with one newline."""

import math
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from unifiedserve.errors import ConfigError
from unifiedserve.messages.media import MediaPlan
from unifiedserve.models.families.llava_next_video import LlavaNextVideoAdapter, LlavaNextVideoProcessor
from unifiedserve.models.frame_sampling import DEFAULT_FRAMES

LIMIT = "anyres_max_"  # a number follows: how many tiles' features an image may have
TOLERATED = 1.1  # factor by which an image's sides may exceed the limit


class LlavaOnevisionProcessor(LlavaNextVideoProcessor):
    image_processors: ClassVar[frozenset[str]] = frozenset({"LlavaOnevisionImageProcessor"})
    default_frames = DEFAULT_FRAMES

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        limit = config.vision_aspect_ratio.removeprefix(LIMIT)
        if not limit.isdecimal():
            raise ConfigError(f"{model_dir}: vision_aspect_ratio {config.vision_aspect_ratio!r} is not {LIMIT}<tiles>")
        self.tiles = int(limit)

    def tile_features(self, rows: int, columns: int) -> tuple[int, int]:
        excess = math.sqrt(rows * columns / (self.tiles * self.patches**2))
        return (int(rows // excess), int(columns // excess)) if excess > TOLERATED else (rows, columns)

    def pooled_side(self) -> int:
        return -(-self.patches // 2)

    def tail_tokens(self) -> int:
        return 1


class LlavaOnevisionAdapter(LlavaNextVideoAdapter):
    def tail(self, plan: MediaPlan) -> Tensor:
        newline: Tensor = self.model.model.image_newline
        return newline[None]
