"""Model folders in published sizes without weights, for `--load-format dummy`; needs no network.

python bench/gpu/shapes.py qwen2.5-vl-7b FOLDER

The tokenizer is the tiny checkpoint's: its tokens are the first of the model's vocabulary, the others have no text.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from unifiedserve.models.checkpoint_files import model_config, write_files
from unifiedserve.models.tiny import TEXT, VISION, make_tokenizer


class Shape(NamedTuple):
    """Fields of config.json, of its vision tower, and of the rules for images and videos."""

    text: dict[str, Any]
    vision: dict[str, Any]
    image_rules: dict[str, Any]
    video_rules: dict[str, Any]


SHAPES = {
    "qwen2.5-vl-7b": Shape(
        text={
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "max_position_embeddings": 128000,
            "rope_theta": 1000000.0,
            "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        },
        vision={
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 3584,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
        },
        image_rules={"max_pixels": 28 * 28 * 16384},
        video_rules={"min_pixels": 28 * 28 * 128, "max_pixels": 28 * 28 * 768, "max_frames": 768},
    ),
    # of no published size: to rehearse with
    "tiny": Shape(TEXT, VISION, {}, {}),
}


def make_folder(path: Path, shape: str) -> Path:
    """Write all but the weights of a model of `SHAPES` into `path` (made if needed); return it."""
    path.mkdir(parents=True, exist_ok=True)
    sizes = SHAPES[shape]
    tokenizer = make_tokenizer(0)
    config = model_config(tokenizer, sizes.text, sizes.vision)
    write_files(path, config, tokenizer, image_rules=sizes.image_rules, video_rules=sizes.video_rules)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a model folder in published sizes, without weights.")
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    make_folder(options.folder, options.shape)
