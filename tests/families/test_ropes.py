"""Rotary embeddings that change with a sequence's length: each answer is that of `generate` alone, whoever is beside.

Prompts are shorter and longer than where they change, or it is within an answer.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import reference
import torch
from checkpoints import find_checkpoint
from deferred import DeferredDevice
from model_loop import Loop, make_adapter
from text_variants import ANSWER, CASES, Variant, compare, requests_of, write_changed

from unifiedserve.device import CPU, Device
from unifiedserve.errors import ConfigError
from unifiedserve.models.context_length import context_length
from unifiedserve.models.registry import load_processor


def longrope(pairs: int, length: int) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": length,
        "short_factor": [1 + 0.1 * i for i in range(pairs)],
        "long_factor": [2.0 + i for i in range(pairs)],
    }


def lengths(directory: Path) -> list[int]:
    ours = load_processor(directory)
    return [len(ours.prompt(case.messages, []).token_ids) for case in CASES]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return find_checkpoint(tmp_path_factory, "llama")


@pytest.mark.parametrize(
    ("family", "extra", "device"),
    [
        ("llama", 0, CPU),
        ("llama", ANSWER // 2, CPU),
        ("mllama", ANSWER // 2, CPU),
        ("llama4_text", ANSWER // 2, CPU),
        pytest.param("llama", ANSWER // 2, DeferredDevice(), id="stand-in for a GPU"),
    ],
)
def test_longrope(
    family: str, extra: int, device: Device, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    base, directory = find_checkpoint(tmp_path_factory, family), tmp_path / "model"
    short, long = lengths(base)
    assert short + ANSWER < long
    write_changed(Variant(family, "rope_parameters", longrope(8, short + extra)).change, base, directory)
    hf = reference.load(directory)
    expected = [hf.generate(case, ANSWER) for case in CASES]
    assert compare(directory, expected, device).kind == "equal"


def test_a_preempted_answer_goes_on_as_it_began(llama: Path, tmp_path: Path) -> None:
    """Its tokens are computed again at once, when the sequence has become longer than where rotations change."""
    directory = tmp_path / "model"
    write_changed(Variant("llama", "rope_parameters", longrope(8, lengths(llama)[0] + 3)).change, llama, directory)
    expected = [reference.load(directory).generate(case, ANSWER) for case in CASES]
    loop = Loop(make_adapter(directory, torch.float32))
    requests = requests_of(load_processor(directory), CASES)

    def preempt(step: int) -> None:
        if step == ANSWER - 2:
            for request in requests:
                loop.preempt(request)

    try:
        assert loop.generate(requests, ANSWER, on_step=preempt) == expected
    finally:
        loop.close()


def test_prompts_of_different_lengths_share_no_keys(llama: Path, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    write_changed(Variant("llama", "rope_parameters", longrope(8, 20)).change, llama, directory)
    assert load_processor(llama).shares_prefixes
    assert not load_processor(directory).shares_prefixes


def test_with_positions_of_several_axes(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    base, directory = find_checkpoint(tmp_path_factory, "qwen2_vl"), tmp_path / "model"
    rope = longrope(8, 20) | {"mrope_section": [2, 3, 3]}
    write_changed(Variant("qwen2_vl", "rope_parameters", rope).change, base, directory)
    with pytest.raises(ConfigError, match=r"config\.json: the rope_type longrope of qwen2_vl_text is not supported"):
        make_adapter(directory, torch.float32)


@pytest.mark.parametrize("family", ["llama", "qwen2_5_vl"])
def test_yarn_reaches_beyond_the_positions_that_a_checkpoint_names(
    family: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Qwen's model cards add YaRN to a config.json whose `max_position_embeddings` stay."""
    base, directory = find_checkpoint(tmp_path_factory, family), tmp_path / "model"
    short, long = lengths(base)

    def stretch(config: dict[str, Any]) -> None:
        text = config.get("text_config", config)
        text["rope_parameters"] |= {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": short}
        text["max_position_embeddings"] = short

    write_changed(stretch, base, directory)
    assert load_processor(directory).context_length == 8 * short > long
    hf = reference.load(directory)
    assert compare(directory, [hf.generate(case, ANSWER) for case in CASES]).kind == "equal"


@pytest.mark.parametrize(
    ("positions", "rope", "length"),
    [
        (32768, {"rope_type": "default"}, 32768),
        (40960, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),  # Qwen3
        (
            163840,
            {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096},
            163840,
        ),  # DeepSeek-V3
        (131072, {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}, 131072),
        (131072, {"full_attention": {"rope_type": "linear", "factor": 8.0}}, 131072),  # Gemma 3
    ],
)
def test_context_length(positions: int, rope: dict[str, Any], length: int) -> None:
    text = SimpleNamespace(max_position_embeddings=positions, rope_parameters={"rope_theta": 1e4, **rope})
    assert context_length(text) == length
