"""A model that was made in advance is filled by the first load of its config and number type, and by no other."""

from pathlib import Path
from typing import Any

import pytest
import torch

from unifiedserve.memory.weights import attach_weights, load_weights
from unifiedserve.models import loading
from unifiedserve.models.adapters import load_adapter
from unifiedserve.models.registry import load_config


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The number types of the models that were made without values."""
    made, make = [], loading._empty_model

    def counted(config: Any, dtype: torch.dtype) -> Any:
        made.append(dtype)
        return make(config, dtype)

    monkeypatch.setattr(loading, "_empty_model", counted)
    return made


def test_the_first_load_fills_it(checkpoint: Path, arena_name: str, made: list[torch.dtype]) -> None:
    load_weights(checkpoint, arena_name, torch.float32)
    plain = load_adapter(checkpoint, attach_weights(arena_name), torch.float32).model
    loading.rehearse_loading(load_config(checkpoint), torch.float32)
    made.clear()
    models = [load_adapter(checkpoint, attach_weights(arena_name), torch.float32).model for _ in range(2)]
    assert made == [torch.float32], "by the second"
    for model in models:
        state = model.state_dict()
        assert all(torch.equal(state[name], tensor) for name, tensor in plain.state_dict().items())
        buffers = dict(model.named_buffers())
        assert all(torch.equal(buffers[name], tensor) for name, tensor in plain.named_buffers())


def test_another_number_type_has_its_own(checkpoint: Path, arena_name: str, made: list[torch.dtype]) -> None:
    load_weights(checkpoint, arena_name, torch.bfloat16)
    loading.rehearse_loading(load_config(checkpoint), torch.float32)
    made.clear()
    adapter = load_adapter(checkpoint, attach_weights(arena_name), torch.bfloat16)
    assert made == [torch.bfloat16]
    assert next(adapter.model.parameters()).dtype == torch.bfloat16


def test_another_config_has_its_own(checkpoint: Path, arena_name: str, made: list[torch.dtype]) -> None:
    load_weights(checkpoint, arena_name, torch.float32)
    other = load_config(checkpoint)
    other.get_text_config().intermediate_size *= 2
    loading.rehearse_loading(other, torch.float32)
    made.clear()
    load_adapter(checkpoint, attach_weights(arena_name), torch.float32)
    assert made == [torch.float32]
