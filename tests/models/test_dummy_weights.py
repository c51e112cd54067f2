"""Random weights in a model's shapes: those of a real checkpoint, the same every time, and of use to the model."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import find_checkpoint
from every_family import FAMILIES
from model_loop import Request, prompt_logits

from unifiedserve.errors import ConfigError
from unifiedserve.memory.tensors import SafetensorsFiles
from unifiedserve.memory.weights import attach_weights, load_weights, plan_weights, store_weights, weights_bytes
from unifiedserve.models.adapters import load_adapter
from unifiedserve.models.dummy import DummyTensors
from unifiedserve.models.processor import ExpandedPrompt
from unifiedserve.models.registry import load_config


def changed(checkpoint: Path, target: Path, **fields: Any) -> Path:
    """Return a copy of a checkpoint without its weights, and with other fields in its config.json."""
    shutil.copytree(checkpoint, target, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | fields))
    return target


def values(checkpoint: Path, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {name: tensor.to(dtype) for name, tensor in DummyTensors(load_config(checkpoint), dtype).read()}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_plan_is_that_of_a_real_checkpoint(family: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    checkpoint = find_checkpoint(tmp_path_factory, family)
    dummy = DummyTensors(load_config(checkpoint), torch.bfloat16)
    assert plan_weights(dummy, torch.bfloat16) == plan_weights(SafetensorsFiles(checkpoint), torch.bfloat16)


def test_the_memory_is_laid_out_as_from_files(checkpoint: Path, arena_name: str) -> None:
    real = load_weights(checkpoint, f"{arena_name}-real", torch.bfloat16)
    real.unlink()
    dummy = DummyTensors(load_config(checkpoint), torch.bfloat16)
    memory = store_weights(dummy, arena_name, torch.bfloat16, "host")
    assert memory.manifest == real.manifest
    assert memory.nbytes == weights_bytes(dummy, torch.bfloat16)
    for name, tensor in dummy.read():
        assert torch.equal(attach_weights(arena_name)[name], tensor.to(torch.bfloat16)), name


def test_values_follow_from_names_alone(checkpoint: Path, tmp_path: Path) -> None:
    """In a model with fewer layers, other tensors come before those that both have."""
    first, again = values(checkpoint), values(checkpoint)
    fewer = values(changed(checkpoint, tmp_path / "fewer", num_hidden_layers=2))
    assert fewer.keys() < first.keys() == again.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in first.items())
    assert all(torch.equal(first[name], tensor) for name, tensor in fewer.items())


def test_values_are_those_of_an_untrained_model(checkpoint: Path, tmp_path: Path) -> None:
    wide = values(changed(checkpoint, tmp_path / "wide", vocab_size=8000, initializer_range=0.05))
    embeddings = wide["model.embed_tokens.weight"]  # longer than the numbers' period
    assert embeddings.std().item() == pytest.approx(0.05, rel=0.02)
    assert embeddings.mean().item() == pytest.approx(0, abs=1e-3)
    assert len(embeddings.unique(dim=0)) == 8000
    assert not torch.equal(embeddings, wide["lm_head.weight"])
    assert (wide["model.norm.weight"] == 1).all()
    assert (wide["model.layers.0.self_attn.q_proj.bias"] == 0).all()


def test_tied_weights_are_there_once(checkpoint: Path, tmp_path: Path) -> None:
    config = load_config(changed(checkpoint, tmp_path / "tied", tie_word_embeddings=True))
    weights = dict(DummyTensors(config, torch.float32).read())
    assert "lm_head.weight" not in weights
    model = load_adapter(tmp_path / "tied", weights, torch.float32).model
    assert model.get_output_embeddings().weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()


def test_a_deep_model_computes_with_them(checkpoint: Path, tmp_path: Path, arena_name: str) -> None:
    deep = changed(checkpoint, tmp_path / "deep", num_hidden_layers=28, max_window_layers=28)
    store_weights(DummyTensors(load_config(deep), torch.bfloat16), arena_name, torch.bfloat16, "host")
    adapter = load_adapter(deep, attach_weights(arena_name), torch.bfloat16)
    prompt = ExpandedPrompt(list(range(5, 45)), [], [])
    logits = prompt_logits(adapter, Request(prompt, torch.empty(0, 1, dtype=torch.uint8)))
    assert logits.isfinite().all()
    assert logits.std(dim=0).min() > 0, "every token of the prompt has logits of its own"
    assert logits.std(dim=1).min() > 0.1, "a token is likelier than another"


def test_a_config_that_makes_no_model(checkpoint: Path, tmp_path: Path) -> None:
    broken = changed(checkpoint, tmp_path / "broken", hidden_act="nonsense")
    with pytest.raises(
        ConfigError, match=re.escape(f"{broken}/config.json: no model can be made of it") + ".*nonsense"
    ):
        DummyTensors(load_config(broken), torch.float32)
