"""Variants of the files of checkpoints' processors: each field with values that someone may write into it."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from builders import FAMILIES
from builders_llava import SIDE

Section = Literal["image_processor", "video_processor"]
FILES: dict[Section, str] = {
    "image_processor": "preprocessor_config.json",
    "video_processor": "video_preprocessor_config.json",
}
#: families whose processors have rules of their own; the others use the same as one of these
OWN_RULES = (
    "qwen2_5_vl",
    "qwen3_vl",
    "gemma3",
    "internvl",
    "llava",
    "llava_squares",
    "llava_next",
    "llava_next_video",
    "llava_onevision",
    "idefics3",
    "smolvlm",
    "mllama",
    "minicpmv4_6",
)
SQUARE, OBLONG = {"height": SIDE, "width": SIDE}, {"height": SIDE, "width": 2 * SIDE}
EDGES = {"shortest_edge": 64 * 64, "longest_edge": 160 * 160}
#: of processors of every family: for those that do not know a field it changes nothing
COMMON: Mapping[str, tuple[Any, ...]] = {
    "do_resize": (True, False),
    "resample": (0, 1, 2, 3, 4, 5, None, "bicubic"),
    "do_rescale": (True, False),
    "rescale_factor": (1 / 255, 1 / 127.5, 1, 0),
    "do_normalize": (True, False),
    "image_mean": ([0.1, 0.2, 0.3], [0, 0, 0], [0.5], 0.5, None),
    "image_std": ([0.1, 0.2, 0.3], [0, 0, 0], [0.5], None),
    "do_convert_rgb": (True, False, None),
    "do_pad": (True, False),
    "pad_size": (SQUARE,),
    "do_center_crop": (True, False),
    "crop_size": (SQUARE, OBLONG, {"height": 28, "width": 28}, {"height": 112, "width": 112}, SIDE, None),
    "size": (
        SQUARE,
        OBLONG,
        EDGES,
        {"height": 78, "width": 78},
        {"height": 112, "width": 112},
        {"shortest_edge": SIDE},
        {"shortest_edge": 28},
        {"shortest_edge": 64},
        {"longest_edge": 180},
        {"shortest_edge": SIDE, "longest_edge": 80},
        {"max_height": SIDE, "max_width": SIDE},
        {"min_pixels": 64 * 64, "max_pixels": 160 * 160},
        SIDE,
        None,
    ),
    "default_to_square": (True, False),
    "data_format": ("channels_first", "channels_last"),
    "input_data_format": ("channels_last",),
    "return_tensors": ("pt", "np"),
    "disable_grouping": (True, False),
    "image_seq_length": (7,),
}
PATCHES: Mapping[str, tuple[Any, ...]] = {
    "min_pixels": (70 * 70, 1, 10**7),
    "max_pixels": (150 * 150, 60),
    "patch_size": (7, 14, 16),
    "temporal_patch_size": (1, 2),
    "merge_size": (1, 2),
}
TILES: Mapping[str, tuple[Any, ...]] = {
    "max_slice_nums": (1, 4),
    "scale_resolution": (16, 48),
    "patch_size": (4, 8),
    "slice_mode": (True, False),
    "downsample_mode": ("4x", "16x"),
    "use_image_id": (True, False),
}
SPLITS: Mapping[str, tuple[Any, ...]] = {
    "do_image_splitting": (True, False),
    "return_row_col_info": (True, False),
    "max_image_size": ({"longest_edge": SIDE}, {"longest_edge": 28}, {"height": SIDE, "width": SIDE}),
}
PINPOINTS: Mapping[str, tuple[Any, ...]] = {"image_grid_pinpoints": ([[112, 112]], [])}
SAMPLING: Mapping[str, tuple[Any, ...]] = {
    "fps": (1, 4.0),
    "num_frames": (2, 3),  # none that a video may lack: transformers refuses it then, and ours takes all that there are
    "do_sample_frames": (True, False),
    "return_metadata": (True,),
}
QWEN_SAMPLING: Mapping[str, tuple[Any, ...]] = {
    **SAMPLING,
    "min_frames": (1, 6),
    "max_frames": (4, 768),
    "cap_pixels_per_frame": (True, False),
    "max_video_tokens": (8, 1000),
}
OWN: Mapping[str, Mapping[Section, Mapping[str, tuple[Any, ...]]]] = {
    "qwen2_5_vl": {"image_processor": PATCHES, "video_processor": {**PATCHES, **QWEN_SAMPLING}},
    "qwen3_vl": {"image_processor": PATCHES, "video_processor": {**PATCHES, **QWEN_SAMPLING}},
    "gemma3": {
        "image_processor": {
            "do_pan_and_scan": (True, False),
            "pan_and_scan_min_crop_size": (64,),
            "pan_and_scan_max_num_crops": (2,),
            "pan_and_scan_min_ratio_to_activate": (1.1,),
        }
    },
    "internvl": {
        "image_processor": {"crop_to_patches": (True, False), "min_patches": (1, 3, 20), "max_patches": (1, 4)},
        "video_processor": {**SAMPLING, "initial_shift": (True, False, 0, 1.5)},
    },
    "llava_next": {"image_processor": PINPOINTS},
    "llava_next_video": {"image_processor": PINPOINTS, "video_processor": SAMPLING},
    "llava_onevision": {"image_processor": PINPOINTS, "video_processor": SAMPLING},
    "idefics3": {"image_processor": SPLITS},
    "smolvlm": {
        "image_processor": SPLITS,
        "video_processor": {
            "max_image_size": SPLITS["max_image_size"],
            "do_sample_frames": SAMPLING["do_sample_frames"],
            "video_sampling": ({"max_frames": 2, "fps": 4, "video_size": {"longest_edge": 90}},),
        },
    },
    "mllama": {"image_processor": {"max_image_tiles": (4, 2, 0)}},
    "minicpmv4_6": {
        "image_processor": TILES,
        "video_processor": {**TILES, **SAMPLING, "max_num_frames": (2, 200), "stack_frames": (1, 2)},
    },
}


class Variant(NamedTuple):
    """A family's checkpoint with other values in its processors' files."""

    family: str
    section: Section
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.family} {self.section} {json.dumps(self.fields)}"


def fields_of(family: str) -> dict[Section, dict[str, tuple[Any, ...]]]:
    """The values to try, by the processors that a family has and their fields."""
    own = OWN.get(family, {})
    sections: list[Section] = ["image_processor"]
    if "video" in FAMILIES[family].media:
        sections.append("video_processor")
    return {section: {**COMMON, **own.get(section, {})} for section in sections}


def single_variants(family: str) -> Iterator[Variant]:
    """Every field alone, with each of its values."""
    for section, fields in fields_of(family).items():
        for name, values in fields.items():
            for value in values:
                yield Variant(family, section, {name: value})


def write_variant(variant: Variant, checkpoint: Path, directory: Path) -> None:
    """Make `directory` the checkpoint, without its weights, with the variant's fields."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(checkpoint, directory, ignore=shutil.ignore_patterns("*.safetensors"))
    nested = directory / "processor_config.json"
    rules = json.loads(nested.read_text()) if nested.is_file() else {}
    path = nested if variant.section in rules else directory / FILES[variant.section]
    content = rules if path == nested else json.loads(path.read_text())
    (content[variant.section] if path == nested else content).update(variant.fields)
    path.write_text(json.dumps(content))
