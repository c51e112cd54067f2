"""A checkpoint of bfloat16 that is computed in float32 takes no more memory, and says the same."""

from pathlib import Path

import pytest
import torch
from model_loop import Loop, Request, make_adapter

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.engine.weight_source import weight_source
from unifiedserve.memory.weights import weights_bytes
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.processor import ExpandedPrompt
from unifiedserve.models.registry import load_config

NARROW, WIDE = "bfloat16", "float32"


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Path]:
    """Return folders of the same random values, saved as bfloat16 and as float32."""
    library = load_transformers()
    config = library.AutoConfig.for_model(
        "qwen2",
        vocab_size=300,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=request.param,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    model = library.AutoModelForCausalLM.from_config(config).bfloat16()
    folders = {name: tmp_path / name for name in (NARROW, WIDE)}
    for name, folder in folders.items():
        model.to(getattr(torch, name)).save_pretrained(folder)
    return folders


def test_tokens_are_those_of_the_same_weights_as_floats(checkpoints: dict[str, Path]) -> None:
    def answer(folder: Path) -> list[list[int]]:
        request = Request(ExpandedPrompt(list(range(5, 45)), [], []), torch.empty(0, 1, dtype=torch.uint8))
        loop = Loop(make_adapter(folder, torch.float32))
        try:
            return loop.generate([request], 12)
        finally:
            loop.close()

    assert answer(checkpoints[NARROW]) == answer(checkpoints[WIDE])


def test_matrices_take_what_they_take_in_the_checkpoint(checkpoints: dict[str, Path]) -> None:
    def size(name: str, dtype: str) -> int:
        folder = checkpoints[name]
        tensors = weight_source(EngineConfig(), folder, load_config(folder), CPU, dtype)
        return weights_bytes(tensors, getattr(torch, dtype))

    assert size(NARROW, WIDE) < 0.51 * size(WIDE, WIDE)
    assert size(NARROW, WIDE) < 1.01 * size(NARROW, NARROW)
