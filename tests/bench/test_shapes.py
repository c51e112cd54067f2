"""Folders in published sizes: as many parameters as are published, and prompts that the tokenizer can write."""

from pathlib import Path

import pytest
import torch

from bench.gpu.shapes import make_folder
from unifiedserve.memory.weights import plan_weights
from unifiedserve.models.dummy import DummyTensors
from unifiedserve.models.registry import load_processor

PARAMETERS = {"qwen2.5-vl-7b": 8_292_166_656}  # of the checkpoint on the hub


@pytest.mark.parametrize("shape", PARAMETERS)
def test_sizes_are_the_published_ones(shape: str, tmp_path: Path) -> None:
    processor = load_processor(make_folder(tmp_path / "made", shape))
    plan = plan_weights(DummyTensors(processor.config, torch.bfloat16), torch.bfloat16)
    assert sum(entry.elements for entry in plan.values()) == PARAMETERS[shape]
    ids = processor.prompt([{"role": "user", "content": "What is a river?"}], []).token_ids
    assert max(ids) < processor.vocab_size
