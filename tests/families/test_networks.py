"""The encoder and the language model of every family, each with its own weights alone."""

import uuid

import pytest
import torch
from builders import Loaded
from torch import nn

from unifiedserve.config import EngineConfig
from unifiedserve.device.cpu import CPU
from unifiedserve.engine.weight_source import wanted_by, weight_source
from unifiedserve.memory.weights import attach_weights, create_weights, weights_bytes, write_weights
from unifiedserve.models.adapters import load_adapter
from unifiedserve.placement import Network

#: one with a tower of ours, one whose encoder has a part of the language model, one with a vector beside its networks
ALWAYS = ("qwen2_5_vl", "mllama", "llava_next")


def filled(model: nn.Module) -> set[str]:
    """Return the parameters and matrices that have values."""
    return {name for name, tensor in model.state_dict().items() if not tensor.is_meta}


def test_each_network_has_what_it_needs_and_nothing_else(loaded: Loaded, request: pytest.FixtureRequest) -> None:
    if loaded.name not in ALWAYS and not request.config.getoption("--long"):
        pytest.skip("a long form: --long runs it")
    config = loaded.adapter.config
    if not loaded.media:
        pytest.skip("it takes texts alone, for which there is one network")
    tensors = weight_source(EngineConfig(), loaded.checkpoint, config, CPU, "float32")
    whole, parts, size = filled(loaded.adapter.model), [], 0
    for network in Network:
        wanted = wanted_by([network], config)
        memory = create_weights(tensors, f"test-models-{uuid.uuid4().hex[:12]}", torch.float32, CPU.place, wanted)
        try:
            write_weights([memory], tensors)
            weights = attach_weights(memory.name, CPU)
        finally:
            memory.unlink()
        size += memory.nbytes
        adapter = load_adapter(loaded.checkpoint, weights, torch.float32, networks=[network])
        parts.append(filled(adapter.model))
        assert adapter.fused == (loaded.adapter.fused and network is Network.LANGUAGE)
    encoder, language = parts
    assert encoder | language == whole
    assert not encoder & language
    assert encoder
    assert abs(size - weights_bytes(tensors, torch.float32)) <= 64
