"""Soft caps, sinks and chunks: long prompts, other families' language models, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import reference
import torch
from builders import Loaded
from builders_scoring import SIZES
from cases import pixels, user
from checkpoints import find_checkpoint
from conformance_cases import prepare
from deferred import DeferredDevice
from model_loop import Loop, make_adapter
from reference import Case, Reference
from text_variants import LANGUAGE_MODEL_SIZES, with_language_model, write_changed

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device
from unifiedserve.engine.weight_source import weight_source
from unifiedserve.errors import ConfigError
from unifiedserve.models.registry import load_config, load_processor

TOKENS = 12
LONG = Case([user("What is a river, and how does it differ from a lake? " * 80)])
SHOWN = [
    Case([user("image", "What is in the image? Be brief, and say where it is.")], [pixels(1, 150, 200)]),
    Case([user("What is a river?")]),
]


class Asked(NamedTuple):
    """Prompts to a checkpoint, and transformers' answers."""

    checkpoint: Path
    hf: Reference
    cases: list[Case]
    expected: list[list[int]]

    @classmethod
    def of(cls, checkpoint: Path, cases: list[Case]) -> "Asked":
        hf = reference.load(checkpoint)
        return cls(checkpoint, hf, cases, [hf.generate(case, TOKENS) for case in cases])


def check_answers(asked: Asked, chunks: tuple[int, ...], device: Device = CPU) -> None:
    """Compare transformers' answers with ours to prompts that are computed together."""
    ours, adapter = load_processor(asked.checkpoint), make_adapter(asked.checkpoint, torch.float32, device)
    loaded = Loaded("", frozenset(), True, asked.checkpoint, ours, adapter, asked.hf)
    for chunk in chunks:
        loop = Loop(adapter, pages=1024)
        try:
            requests = [prepare(loaded, case) for case in asked.cases]
            assert loop.generate(requests, TOKENS, chunk, ours.eos_token_ids) == asked.expected
        finally:
            loop.close()


@pytest.fixture(scope="module", params=SIZES)
def many_parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    asked = Asked.of(find_checkpoint(tmp_path_factory, request.param), [LONG, SHOWN[1]])
    assert len(asked.hf.inputs(LONG)["input_ids"][0]) > 1024
    return asked


@pytest.mark.parametrize(
    ("make_device", "chunks"), [(lambda: CPU, (700, 1 << 30)), (DeferredDevice, (700,))], ids=["cpu", "stand-in"]
)
def test_a_prompt_of_many_parts(many_parts: Asked, make_device: Callable[[], Device], chunks: tuple[int, ...]) -> None:
    check_answers(many_parts, chunks, make_device())


@pytest.mark.parametrize("family", ["internvl", "llava", "llava_next"])
@pytest.mark.parametrize("name", SIZES)
def test_as_a_language_model(name: str, family: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    base, checkpoint = find_checkpoint(tmp_path_factory, family), tmp_path / "model"
    sizes = {field: value for field, value in SIZES[name].items() if field not in LANGUAGE_MODEL_SIZES}

    def change(config: dict[str, Any]) -> None:
        with_language_model(name, base)(config)
        config["text_config"].update(sizes, no_rope_layers=None, layer_types=None, moe_layers=None)

    write_changed(change, base, checkpoint)
    check_answers(Asked.of(checkpoint, SHOWN), (23, 1 << 30))


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("llama4_text", {"attention_chunk_size": 0}, "chunked_attention needs an attention_chunk_size, in tokens"),
        ("llama4_text", {"layer_types": ["sliding_attention"] * 3}, "supported are chunked_attention, full_attention"),
        ("gpt_oss", {"sliding_window": None}, "sliding_attention needs a sliding_window, in tokens"),
        ("gemma2", {"attn_logit_softcapping": 0.0}, "attn_logit_softcapping must be above 0 or null, got 0.0"),
        ("gemma2", {"final_logit_softcapping": -1.0}, "final_logit_softcapping must be above 0 or null, got -1.0"),
    ],
)
def test_what_is_refused(
    name: str, changes: dict[str, Any], words: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    base = find_checkpoint(tmp_path_factory, name)
    config = json.loads((base / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ConfigError, match=words):
        load_config(tmp_path)


def test_quantised_experts_are_refused(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    """The published gpt_oss files hold MXFP4, of which transformers' bfloat16 copies are read."""
    base = find_checkpoint(tmp_path_factory, "gpt_oss")
    config = json.loads((base / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((base / "model.safetensors").read_bytes())
    with pytest.raises(ConfigError, match="checkpoints quantised by mxfp4 are not supported; those that are: "):
        weight_source(EngineConfig(), tmp_path, load_config(tmp_path), CPU, "bfloat16")
