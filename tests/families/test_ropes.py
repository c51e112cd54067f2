"""Rotary embeddings that change with a sequence's length: each answer is that of `generate` alone, whoever is beside.

Prompts are shorter and longer than where they change, or it is within an answer.
"""

from pathlib import Path
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
