"""A model over several GPUs, which are stand-ins with memories of their own, says what it says on the processor.

The worker forks its other ranks, as it does on real GPUs; only NCCL is replaced, by operations as late as the kernels.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import chat_template, save, text_sizes, tokenizer
from checkpoints import find_checkpoint
from PIL import Image

from unifiedserve.models.hub import load_transformers

PROCESS = Path(__file__).with_name("gpu_ranks_process.py")
#: what the ranks do together where the device decodes by itself: a request for two answers has pages copied
TOGETHER = {"CopyPages", "Embed", "Forget", "Launch", "Leave", "Logits", "Step"}
ENCODED = {"Encode", "Encoded", "Layer"}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "noise.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (112, 84, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture
def with_biases(tmp_path: Path) -> Path:
    """Return a text model whose sums have biases, which one rank adds."""
    tokens = tokenizer()
    sizes = text_sizes(tokens, attention_bias=True, mlp_bias=True)
    save(tmp_path, load_transformers().AutoConfig.for_model("llama", **sizes), tokens, chat_template({}))
    return tmp_path


def lines_of(checkpoint: Path, image: object, ranks: int, encoder: str = "", placement: str = "one") -> list[Any]:
    """Return what the process prints."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, PROCESS, checkpoint, str(image), str(ranks), encoder, placement]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("encoder", ["tp2", pytest.param("dp2", marks=pytest.mark.long)])
def test_the_tokens_are_those_of_the_processor(
    tmp_path_factory: pytest.TempPathFactory, image: Path, encoder: str
) -> None:
    checkpoint = find_checkpoint(tmp_path_factory, "qwen2_5_vl")
    (expected,) = lines_of(checkpoint, image, 1)
    kinds, found = lines_of(checkpoint, image, 2, encoder)
    assert found == expected
    assert set(kinds) - {"Prepare"} == TOGETHER | ENCODED


@pytest.mark.long
def test_a_worker_that_only_encodes_is_one_process_beside_ranks(
    tmp_path_factory: pytest.TempPathFactory, image: Path
) -> None:
    """Pages of its memory are laid out for the ranks of the others."""
    checkpoint = find_checkpoint(tmp_path_factory, "qwen2_5_vl")
    (expected,) = lines_of(checkpoint, image, 1)
    *_, found = lines_of(checkpoint, image, 2, "", "v+e+p+d")
    assert found == expected


def test_one_rank_adds_the_biases_of_sums(with_biases: Path) -> None:
    (expected,) = lines_of(with_biases, "none", 1)
    kinds, found = lines_of(with_biases, "none", 2)
    assert found == expected
    assert set(kinds) - {"Prepare"} == TOGETHER
