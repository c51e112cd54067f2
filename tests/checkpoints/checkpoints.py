"""Checkpoints by name, each made once a run: of every family, and those that some tests of the engine need."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import chat_template, save, text_sizes, tokenizer
from every_family import FAMILIES
from once import once, run_folder
from quantized_checkpoints import (
    write_gptq,
    write_gptq_values,
    write_int4_values,
    write_int8_values,
    write_packed,
    write_packed_values,
)
from real_checkpoints import REAL
from reference import transformers
from tokenizers.processors import TemplateProcessing

from unifiedserve.models.checkpoint_files import model_config, write_files
from unifiedserve.models.default import DEFAULT_CHECKPOINT
from unifiedserve.models.tiny import TEXT, VISION, make_checkpoint, make_tokenizer

MakeCheckpoint = Callable[[Path], object]


def find_checkpoint(factory: pytest.TempPathFactory, name: str) -> Path:
    """Return the folder of the checkpoint `name`: a family, "tiny", "bundled", or one of `FURTHER`."""
    if name == "bundled":
        return DEFAULT_CHECKPOINT
    make = FURTHER[name] if name in FURTHER else FAMILIES["qwen2_5_vl" if name == "tiny" else name].make
    return once(run_folder(factory) / "checkpoints" / name, make)


def pooled_texts(directory: Path) -> None:
    """Make an embedding model of texts, saved without a head, whose tokenizer ends each text with a mark."""
    whole = directory.with_name(f"{directory.name}-whole")
    tokens = tokenizer()
    end = ("<|endoftext|>", tokens.convert_tokens_to_ids("<|endoftext|>"))
    tokens._tokenizer.post_processor = TemplateProcessing(single="$0 <|endoftext|>", special_tokens=[end])
    save(whole, transformers.Qwen3Config(**text_sizes(tokens)), tokens, chat_template({}))
    transformers.AutoModel.from_pretrained(whole).save_pretrained(directory)
    for file in whole.glob("*token*"):
        shutil.copy(file, directory)
    _add_pooling(directory, "mean_tokens")


def pooled_images(directory: Path) -> None:
    """Make an embedding model of the tiny checkpoint, of images and texts."""
    make_checkpoint(directory)
    _add_pooling(directory, "lasttoken")


def _add_pooling(checkpoint: Path, mode: str) -> None:
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (checkpoint / "modules.json").write_text(json.dumps(modules))
    (checkpoint / "1_Pooling").mkdir()
    (checkpoint / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))


def without_weights(directory: Path) -> None:
    """Make the tiny checkpoint without weights, of a model that has more tokens than the tokenizer."""
    directory.mkdir(parents=True)
    tokens = make_tokenizer(0)
    write_files(directory, model_config(tokens, {**TEXT, "vocab_size": 2048}, VISION), tokens)


FURTHER: dict[str, MakeCheckpoint] = {
    "pooled_texts": pooled_texts,
    "pooled_images": pooled_images,
    "without_weights": without_weights,
    "gptq": write_gptq,
    "gptq_values": write_gptq_values,
    "packed": write_packed,
    "packed_values": write_packed_values,
    "int8_values": write_int8_values,
    "int4_values": write_int4_values,
    **REAL,
}
