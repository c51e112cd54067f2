"""Quantised checkpoints and options that cannot be served: one line says why, and the exit code is 2."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import find_checkpoint
from deferred import DeferredDevice
from safetensors.torch import load_file, save_file
from stored_weights import GPTQ

from unifiedserve.engine import supervisor

ErrorOf = Callable[..., str]
SERVE = ("serve", "--port", "0", "--kv-cache-mib", "16", "--patch-buffer-mib", "16", "--visual-buffer-mib", "16")
MODULE = "model.layers.1.mlp.down_proj"  # of 192 outputs and 384 inputs, in 12 groups


@pytest.fixture
def gptq(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """A GPTQ checkpoint to be changed."""
    return Path(shutil.copytree(find_checkpoint(tmp_path_factory, "gptq"), tmp_path / "gptq"))


def say(checkpoint: Path, quantization: dict[str, Any]) -> None:
    file = checkpoint / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"quantization_config": quantization}))


def put(checkpoint: Path, name: str, tensor: torch.Tensor | None) -> None:
    stored = load_file(checkpoint / "model.safetensors")
    stored.pop(name, None)
    save_file(stored | ({} if tensor is None else {name: tensor}), checkpoint / "model.safetensors")


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            "by bitsandbytes are not supported; those that are: awq",
        ),
        ({"quant_method": "hqq"}, "by hqq are not supported"),
        (GPTQ | {"bits": 3}, "_proj.weight: GPTQ of 3 bits is not supported"),
        (GPTQ | {"group_size": 100}, "_proj.weight: groups of 100 do not divide its"),
        (GPTQ | {"group_size": 24}, "_proj.weight: groups of 24 inputs (of 384) are not multiples of 16"),
    ],
)
def test_a_config_that_cannot_be_served(
    gptq: Path, error_of: ErrorOf, quantization: dict[str, Any], words: str
) -> None:
    say(gptq, quantization)
    assert words in error_of(*SERVE, str(gptq))


@pytest.mark.parametrize(
    ("part", "tensor", "words"),
    [
        ("scales", None, f"{MODULE}.scales is missing; expected"),
        ("scales", torch.ones(6, 192, dtype=torch.float16), f"{MODULE}.scales is float16 [6, 192]; expected"),
        (
            "qzeros",
            torch.zeros(12, 23, dtype=torch.int32),
            f"{MODULE}.qzeros is int32 [12, 23]; expected int32 [12, 24]",
        ),
        ("bias", torch.ones(192), "holds 1 tensors that its config.json has no place for: "),
    ],
)
def test_tensors_that_do_not_fit(
    gptq: Path, error_of: ErrorOf, part: str, tensor: torch.Tensor | None, words: str
) -> None:
    put(gptq, f"{MODULE}.{part}", tensor)
    assert words in error_of(*SERVE, str(gptq))


@pytest.mark.parametrize("option", ["int8", "int4"])
def test_quantised_already(gptq: Path, error_of: ErrorOf, option: str) -> None:
    line = error_of(*SERVE, str(gptq), "--quantization", option)
    assert f"--quantization {option}: this checkpoint is quantised already (gptq); leave --quantization" in line


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return find_checkpoint(tmp_path_factory, "llava")


def test_a_vision_tower_of_another_kind(llava: Path, error_of: ErrorOf) -> None:
    line = error_of(*SERVE, str(llava), "--vision-quantization", "int8")
    assert "--vision-quantization int8 is for the vision towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL" in line


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_a_device_without_products_of_codes(
    tmp_path_factory: pytest.TempPathFactory, error_of: ErrorOf, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr(supervisor, "select_device", lambda config: DeferredDevice())
    checkpoint = find_checkpoint(tmp_path_factory, "tiny")
    line = error_of(*SERVE, str(checkpoint), "--quantization", "int4", "--device", device)
    assert "--quantization int4 computes with the CPU's kernels for now: leave it out, or give --device cpu" in line
