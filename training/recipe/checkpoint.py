"""The bundled model's shape, tokenizer and rules, and how it is written as a checkpoint."""

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from training.world.questions import conversation
from training.world.sampling import STILL, Recipe, sample_scene
from unifiedserve.models.checkpoint_files import CHAT_TEMPLATE, hub_name, model_config, train_tokenizer, write_files
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.tiny import WORDS

#: the examination asks for the likeliest tokens; so do requests that do not say how tokens are chosen
LIKELIEST = {"do_sample": False, "temperature": 0.0}
VOCABULARY = 1024  # tokens before the special ones
SIDE = 28  # pixels of a visual token's side
IMAGE_RULES = {"min_pixels": 12 * SIDE**2, "max_pixels": 24 * SIDE**2}
VIDEO_RULES = IMAGE_RULES | {"fps": 2.0, "min_frames": 4, "max_frames": 128}

TEXT = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    # Time, height and width by turns: each needs quick and slow angles, time (up to 1200) the slowest.
    "rope_theta": 1000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 1, 1, 1, 1, 8, 1, 1]},
}
VISION = {
    "depth": 4,
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_heads": 4,
    "fullatt_block_indexes": [0, 1, 2, 3],
}

#: Media come before the text, in whatever order a message has them: the model has only learned that one.
MEDIA_FIRST = CHAT_TEMPLATE.replace(
    "{%- for part in message.content -%}",
    "{%- for part in (message.content | rejectattr('type', 'eq', 'text') | list)"
    " + (message.content | selectattr('type', 'eq', 'text') | list) -%}",
)


@cache
def make_tokenizer() -> Tokenizer:
    """Train a tokenizer: whole words for all that is said about the world, pieces for the rest."""
    return train_tokenizer(_texts(), VOCABULARY)


def _texts() -> Iterator[str]:
    for seed in range(500):
        scene = sample_scene(STILL if seed % 8 == 0 else Recipe(), (seed, 1))
        for turn in conversation(scene, np.random.default_rng(seed)):
            yield from (turn.question, turn.answer)
    for number in range(61):
        yield from [f"It happens at second {number}. At minute {number // 6}:{number % 6}0."] * 20
    yield from (f"the {word}" for word in WORDS.split())


def bundled_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the model's config.json."""
    return model_config(tokenizer, TEXT, VISION)


def make_model(config: dict[str, Any], seed: int) -> Any:
    """Make the model with fresh float32 weights."""
    library = load_transformers()
    model = library.AutoModelForImageTextToText.from_config(
        library.Qwen2_5_VLConfig.from_dict(config), dtype=torch.float32
    )
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        _fill(name, parameter, generator)
    return model


@torch.no_grad()
def _fill(name: str, parameter: nn.Parameter, generator: torch.Generator) -> None:
    """Fill a parameter as wide as keeps the signal's size; what adds to the residual stream begins smaller."""
    if name.endswith("bias"):
        parameter.zero_()
    elif "norm" in name or "ln_q" in name:
        parameter.fill_(1.0)
    elif "embed_tokens" in name:
        parameter.normal_(0.0, 0.5, generator=generator)
    else:
        gain = 0.4 if any(part in name for part in ("o_proj", "down_proj", "attn.proj")) else 1.0
        parameter.normal_(0.0, gain / math.sqrt(math.prod(parameter.shape[1:])), generator=generator)


def write_description(directory: Path) -> Tokenizer:
    """Write all files but the weights; return the directory's tokenizer if it has one, else a new one."""
    directory.mkdir(parents=True, exist_ok=True)
    known = directory / "tokenizer.json"  # weights in there go with it, whatever the texts of today would give
    tokenizer = Tokenizer.from_file(str(known)) if known.exists() else make_tokenizer()
    config = bundled_config(tokenizer)
    write_files(
        directory,
        config,
        tokenizer,
        chat_template=MEDIA_FIRST,
        image_rules=IMAGE_RULES,
        video_rules=VIDEO_RULES,
        generation=LIKELIEST,
    )
    return tokenizer


def write_weights(directory: Path, model: Any) -> None:
    """Write the weights in bfloat16, under the names of checkpoints on the hub."""
    weights: dict[str, Tensor] = {
        hub_name(name): tensor.to(torch.bfloat16).contiguous() for name, tensor in sorted(model.state_dict().items())
    }
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
