"""Process prompts and media of Qwen2.5-VL."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from flashcodec import PatchLayout
from unifiedserve.messages.media import MediaKind, MediaOptions, MediaPlan, PromptError, VideoInfo
from unifiedserve.models.families.qwen2_5_vl.rules import (
    IMAGE_PROCESSORS,
    MediaRules,
    check_patches,
    frame_size,
    image_size,
    read_files,
    sample_frames,
)
from unifiedserve.models.frame_sampling import known_fps
from unifiedserve.models.processor import Processor
from unifiedserve.models.processor_defaults import QWEN2_VIDEOS


class Qwen25VLProcessor(Processor):
    video_defaults: ClassVar[Mapping[str, Any]] = QWEN2_VIDEOS

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        super().__init__(model_dir, config, chat_template)
        files = read_files(model_dir, self.video_defaults)
        files[0].check_class(IMAGE_PROCESSORS)
        for rules in files:
            check_patches(rules, config.vision_config)
        self.image_rules, self.video_rules = map(MediaRules.read, files)
        self.visual_ids = {"image": config.image_token_id, "video": config.video_token_id}
        self.placeholders = {kind: self.tokenizer.decode([token]) for kind, token in self.visual_ids.items()}
        self.patch_row_bytes = self.image_rules.row_bytes
        self.visual_dim = config.text_config.hidden_size

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        rows, columns = image_size(self.image_rules, height, width, options)
        return patch_plan(self.image_rules, "image", (), rows, columns, units=1, seconds=0.0)

    def video_plan(self, video: VideoInfo, options: MediaOptions) -> MediaPlan:
        rules = self.video_rules
        indices = sample_frames(rules, video, options)
        rows, columns = frame_size(rules, video.height, video.width, len(indices), options)
        sampled_fps = len(indices) / video.num_frames * known_fps(video)
        return patch_plan(
            rules,
            "video",
            indices,
            rows,
            columns,
            units=-(-len(indices) // rules.temporal_patch_size),
            seconds=rules.temporal_patch_size / sampled_fps,
        )


def patch_plan(
    rules: MediaRules,
    kind: MediaKind,
    indices: tuple[int, ...],
    height: int,
    width: int,
    *,
    units: int,
    seconds: float,
) -> MediaPlan:
    """Plan `units` temporal groups of `height` × `width` pixels each, `seconds` apart."""
    layout = _layout(rules, height, width)
    return MediaPlan(
        kind=kind,
        frame_indices=indices,
        layout=layout,
        units=units,
        patches_per_unit=layout.rows_per_group,
        tokens_per_unit=layout.rows_per_group // rules.merge_size**2,
        seconds_per_unit=seconds,
    )


def _layout(rules: MediaRules, height: int, width: int) -> PatchLayout:
    """Return the layout of patches; PromptError for a frame that FlashCodec does not resize to that size."""
    try:
        sizes = rules.patch_size, rules.temporal_patch_size, rules.merge_size
        return PatchLayout(height, width, *sizes, interpolation=rules.interpolation)
    except ValueError as error:
        raise PromptError(str(error)) from error
