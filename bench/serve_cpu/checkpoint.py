"""Make the checkpoint of the benchmark: Qwen2.5-VL with half a billion parameters, random weights in bfloat16.

    python bench/serve_cpu/checkpoint.py DIRECTORY

The language model has the shape of Qwen2.5-0.5B (494 M parameters, 151,936 tied embeddings), the vision tower 98 M.
Only the first rows of the embedding belong to tokens; the others are zero, so that they are never the likeliest.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from safetensors.torch import load_file, save_file

from unifiedserve.models.tiny import make_checkpoint

DEFAULT_FOLDER = Path("~/.cache/unifiedserve-bench/half-billion").expanduser()
VOCABULARY = 151_936
SIZES = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
    "vision_config": {
        "depth": 12,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_heads": 12,
        "out_hidden_size": 896,
        "fullatt_block_indexes": [2, 5, 8, 11],
    },
}

# From the largest image vLLM derives how long a video may be: with the tiny checkpoint's, ours would not be let in.
IMAGES = {"max_pixels": 28 * 28 * 320}
# As in the checkpoints on the hub: else vLLM, which picks the frames itself, has some of them picked again.
VIDEOS = {"do_sample_frames": False}


def make(directory: Path, seed: int = 0) -> Path:
    """Write the checkpoint, 1.2 GB; the same seed makes the same bytes."""
    make_checkpoint(directory, seed, SIZES)
    tie_embeddings(directory)
    change(directory / "config.json", {"vocab_size": VOCABULARY, "tie_word_embeddings": True})
    change(directory / "preprocessor_config.json", IMAGES)
    change(directory / "video_preprocessor_config.json", VIDEOS)
    return directory


def change(file: Path, fields: dict[str, Any]) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields, indent=2) + "\n")


def tie_embeddings(directory: Path) -> None:
    """Let the output matrix be the input embedding, too, and pad it with zeros to the size of Qwen2.5's."""
    file = directory / "model.safetensors"
    weights = load_file(file)
    used = weights.pop("lm_head.weight")
    embedding = torch.zeros(VOCABULARY, used.shape[1], dtype=used.dtype)
    embedding[: len(used)] = used
    weights["model.embed_tokens.weight"] = embedding
    complete = file.with_suffix(".partial")
    save_file(weights, complete, metadata={"format": "pt"})
    complete.replace(file)


def main(
    directory: Annotated[Path, typer.Argument(help="Where the files go; made if needed")],
    seed: Annotated[int, typer.Option(help="Of the random weights")] = 0,
) -> None:
    """Make the checkpoint."""
    make(directory, seed)


if __name__ == "__main__":
    typer.run(main)
