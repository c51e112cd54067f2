"""Mixtures of experts in every layout that checkpoints on the hub have, without a copy in the workers."""

from pathlib import Path
from typing import Any

import builders
import pytest
import torch
from model_loop import make_adapter
from safetensors.torch import load_file, save_file

from unifiedserve.errors import ConfigError


def experts(checkpoint: Path) -> tuple[Any, Any]:
    """The experts of the last layer, and a parameter that is taken as it is."""
    adapter = make_adapter(checkpoint, torch.float32)
    return adapter.language_model.layers[-1].mlp.experts, adapter.language_model.norm.weight


def rewritten(checkpoint: Path, change: Any) -> Path:
    file = checkpoint / "model.safetensors"
    tensors = {name: tensor.contiguous() for name, tensor in change(load_file(file)).items()}
    save_file(tensors, file, metadata={"format": "pt"})
    return checkpoint


@pytest.mark.parametrize("family", ["qwen2_moe", "qwen3_moe", "qwen3_vl_moe"])
def test_experts_are_used_in_place(family: str, tmp_path: Path) -> None:
    builders.FAMILIES[family].make(tmp_path)
    modules, other = experts(tmp_path)
    arena = other.untyped_storage().data_ptr()
    assert {weight.untyped_storage().data_ptr() for weight in (modules.gate_up_proj, modules.down_proj)} == {arena}


def test_one_by_one(tmp_path: Path) -> None:
    """Twelve of them, which files sort as 0, 1, 10, 11, 2, …"""
    builders.FAMILIES["qwen3_moe"].make(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    modules, _ = experts(tmp_path)
    for number in range(12):
        name = f"model.layers.2.mlp.experts.{number}"
        parts = [tensors[f"{name}.{part}_proj.weight"] for part in ("gate", "up", "down")]
        assert torch.equal(modules.gate_up_proj[number], torch.cat(parts[:2]))
        assert torch.equal(modules.down_proj[number], parts[2])


def test_transposed(tmp_path: Path) -> None:
    """As Qwen3-VL's first checkpoints hold them."""
    builders.FAMILIES["qwen3_vl_moe"].make(tmp_path)
    expected, _ = experts(tmp_path)
    rewritten(tmp_path, lambda all: {name: t.mT if ".experts." in name else t for name, t in all.items()})
    turned, other = experts(tmp_path)
    assert torch.equal(turned.gate_up_proj, expected.gate_up_proj)
    assert torch.equal(turned.down_proj, expected.down_proj)
    tokens = torch.randn(5, 96), torch.arange(10).view(5, 2), torch.full((5, 2), 0.5)
    torch.testing.assert_close(turned(*tokens), expected(*tokens))
    assert turned.down_proj.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def test_an_expert_is_missing(tmp_path: Path) -> None:
    builders.FAMILIES["qwen3_moe"].make(tmp_path)
    lost = "model.layers.1.mlp.experts.3.up_proj.weight"
    rewritten(tmp_path, lambda all: {name: tensor for name, tensor in all.items() if name != lost})
    with pytest.raises(ConfigError, match=r"layers\.1\.mlp\.experts\.gate_up_proj is float32\[1472, 96\] instead of"):
        experts(tmp_path)
