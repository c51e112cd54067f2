"""The processors' files of published checkpoints, in the layouts in which they are found, old ones included."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
STEPS = {"do_convert_rgb": True, "do_normalize": True, "do_rescale": True, "do_resize": True}
STEPS |= {"rescale_factor": 0.00392156862745098}
NULLS = dict.fromkeys(("crop_size", "device", "disable_grouping", "do_center_crop", "input_data_format"))
NULLS |= {"return_tensors": None, "data_format": "channels_first"}
FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")


class Published(NamedTuple):
    """A family's checkpoint with other sizes in its config.json, and its processors' files instead of those it has."""

    family: str
    config: Mapping[str, Any]
    processor: Mapping[str, Any]
    images: Mapping[str, Any]
    videos: Mapping[str, Any] = {}


def write_published(published: Published, checkpoint: Path, directory: Path) -> None:
    """Make `directory` the checkpoint, without its weights, as it would be published."""
    shutil.copytree(checkpoint, directory, ignore=shutil.ignore_patterns("*.safetensors", *FILES), dirs_exist_ok=True)
    config = json.loads((directory / "config.json").read_text())
    for name, value in published.config.items():
        config[name] = {**config[name], **value} if isinstance(value, Mapping) else value
    (directory / "config.json").write_text(json.dumps(config))
    for file, content in zip(FILES, published[2:], strict=True):
        if content:
            (directory / file).write_text(json.dumps(content))


def _square(side: int) -> dict[str, int]:
    return {"height": side, "width": side}


def _grid(side: int, *grids: tuple[int, int]) -> dict[str, list[list[int]]]:
    return {"image_grid_pinpoints": [[rows * side, columns * side] for rows, columns in grids]}


_LLAVA = {"image_token": "<image>", "patch_size": 14, "vision_feature_select_strategy": "default"}
_LLAVA |= {"num_additional_image_tokens": 1}
_CLIP_336 = {**STEPS, **CLIP, "do_center_crop": True, "crop_size": _square(336), "size": {"shortest_edge": 336}}
_CLIP_336 |= {"resample": 3}
_ANYRES = _grid(336, (1, 2), (2, 1), (2, 2), (3, 1), (1, 3))
_NEXT = {**_CLIP_336, **_ANYRES, "aspect_ratio_setting": "anyres", "do_pad": True}
_NEXT |= {"image_processor_type": "LlavaNextImageProcessor"}
_MANY = _grid(384, *((rows, columns) for rows in range(1, 7) for columns in range(1, 7)))
_SIGLIP_384 = {**STEPS, **HALF, "resample": 3, "size": _square(384)}
_INTERNVL = {**STEPS, **IMAGENET, **NULLS, "resample": 3, "size": _square(448), "default_to_square": True}
_QWEN = {**CLIP, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, "min_pixels": 3136}
_QWEN |= {"max_pixels": 12845056, "image_processor_type": "Qwen2VLImageProcessor"}
_QWEN3 = {**HALF, "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}
_SPLIT = {**STEPS, **HALF, "resample": 1, "do_image_splitting": True, "do_pad": True}

PUBLISHED = {
    "LLaVA-1.5": Published(
        "llava",
        {"vision_config": {"image_size": 336}},
        _LLAVA,
        {**_CLIP_336, "image_processor_type": "CLIPImageProcessor"},
    ),
    "LLaVA-1.5 of a feature extractor": Published(
        "llava",
        {"vision_config": {"image_size": 336}},
        _LLAVA,
        {
            **{name: _CLIP_336[name] for name in ("do_center_crop", "do_normalize", "do_resize", "resample", *CLIP)},
            "crop_size": 336,
            "size": 336,
            "feature_extractor_type": "CLIPFeatureExtractor",
        },
    ),
    "LLaVA with SigLIP": Published(
        "llava",
        {"vision_config": {"image_size": 384}},
        _LLAVA,
        {**_SIGLIP_384, "image_processor_type": "SiglipImageProcessor"},
    ),
    "LLaVA-1.6": Published("llava_next", {"vision_config": {"image_size": 336}, **_ANYRES}, _LLAVA, {**_NEXT}),
    "LLaVA-NeXT-Video": Published(
        "llava_next_video",
        {"vision_config": {"image_size": 336}, **_ANYRES},
        {**_LLAVA, "video_token": "<video>"},
        {**_NEXT},
        {**_CLIP_336, "video_processor_type": "LlavaNextVideoVideoProcessor"},
    ),
    "LLaVA-OneVision": Published(
        "llava_onevision",
        {"vision_config": {"image_size": 384}, "vision_aspect_ratio": "anyres_max_9", **_MANY},
        {"num_image_tokens": 729, "vision_feature_select_strategy": "full"},
        {**_SIGLIP_384, **_MANY, "do_pad": True, "image_processor_type": "LlavaOnevisionImageProcessor"},
        {**_SIGLIP_384, "video_processor_type": "LlavaOnevisionVideoProcessor"},
    ),
    "InternVL3": Published(
        "internvl",
        {"vision_config": {"image_size": [448, 448]}},
        {"image_seq_length": 256},
        {
            **_INTERNVL,
            "crop_to_patches": False,
            "min_patches": 1,
            "max_patches": 12,
            "image_processor_type": "GotOcr2ImageProcessorFast",
        },
        {**_INTERNVL, "do_pad": None, "video_processor_type": "InternVLVideoProcessor"},
    ),
    "Gemma 3": Published(
        "gemma3",
        {"vision_config": {"image_size": 896}, "mm_tokens_per_image": 256},
        {"image_seq_length": 256},
        {
            **STEPS,
            **HALF,
            "do_convert_rgb": None,
            "do_pan_and_scan": None,
            "pan_and_scan_max_num_crops": None,
            "pan_and_scan_min_crop_size": None,
            "pan_and_scan_min_ratio_to_activate": None,
            "image_seq_length": 256,
            "resample": 2,
            "size": _square(896),
            "image_processor_type": "Gemma3ImageProcessor",
        },
    ),
    "Idefics3": Published(
        "idefics3",
        {"vision_config": {"image_size": 364}},
        {"image_seq_len": 169},
        {
            **_SPLIT,
            "max_image_size": {"longest_edge": 364},
            "size": {"longest_edge": 1456},
            "image_processor_type": "Idefics3ImageProcessor",
        },
    ),
    "SmolVLM": Published(
        "idefics3",
        {"vision_config": {"image_size": 384}, "scale_factor": 3},
        {"image_seq_len": 81},
        {
            **_SPLIT,
            "max_image_size": {"longest_edge": 384},
            "size": {"longest_edge": 1536},
            "image_processor_type": "Idefics3ImageProcessor",
        },
    ),
    "SmolVLM2": Published(
        "smolvlm",
        {"vision_config": {"image_size": 512, "patch_size": 16}, "scale_factor": 4},
        {"image_seq_len": 64},
        {
            **_SPLIT,
            "max_image_size": {"longest_edge": 512},
            "size": {"longest_edge": 2048},
            "video_sampling": {"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 2048}},
            "image_processor_type": "SmolVLMImageProcessor",
        },
    ),
    "Llama 3.2 Vision": Published(
        "mllama",
        {"vision_config": {"image_size": 560}},
        {},
        {
            **STEPS,
            **CLIP,
            "do_pad": True,
            "max_image_tiles": 4,
            "resample": 2,
            "size": _square(560),
            "image_processor_type": "MllamaImageProcessor",
        },
    ),
    "MiniCPM-V 4.6": Published(
        "minicpmv4_6",
        {"vision_config": {"image_size": 980, "patch_size": 14}},
        {},
        {"image_processor_type": "MiniCPMV4_6ImageProcessor"},
        {"video_processor_type": "MiniCPMV4_6VideoProcessor"},
    ),
    "Qwen2-VL": Published("qwen2_vl", {}, {}, _QWEN),
    "Qwen2-VL with limits in size": Published(
        "qwen2_vl", {}, {}, {**STEPS, **_QWEN, "resample": 3, "size": {"max_pixels": 12845056, "min_pixels": 3136}}
    ),
    "Qwen2.5-VL": Published("qwen2_5_vl", {}, {}, _QWEN),
    "Qwen3-VL": Published(
        "qwen3_vl",
        {},
        {},
        {
            **_QWEN3,
            "size": {"longest_edge": 16777216, "shortest_edge": 65536},
            "image_processor_type": "Qwen2VLImageProcessorFast",
        },
        {
            **_QWEN3,
            "size": {"longest_edge": 25165824, "shortest_edge": 4096},
            "video_processor_type": "Qwen3VLVideoProcessor",
        },
    ),
}
