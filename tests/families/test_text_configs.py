"""Text configs: what they say is done as `generate` does it, or refused when they are loaded."""

from pathlib import Path
from typing import Any

import pytest
import torch
from builders import internvl_with
from checkpoints import find_checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from model_loop import Loop, make_adapter
from reference import transformers
from text_variants import CASES, Variant, requests_of, try_changed, variants, with_language_model, write_changed

from unifiedserve.errors import ConfigError
from unifiedserve.models import loading
from unifiedserve.models.registry import load_config, load_processor

FAMILIES = ("llama", "mistral", "qwen3_moe", "gemma3_text", "qwen3_5_text", "internvl", "qwen2_5_vl", "mllama")
SIZES = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (
            "layer_types",
            ["chunked_attention"] * 3,
            r"layer_types has chunked_attention; supported are full_attention, ",
        ),
        ("layer_types", ["linear_attention"] * 3, r"layer_types has linear_attention alone; at least one layer must"),
        ("layer_types", ["sliding_attention"] * 3, r"a model with sliding_attention needs a sliding_window"),
        ("is_causal", False, r"models whose tokens see those after them \(is_causal: False\) are not supported"),
    ],
)
def test_what_is_not_known(
    field: str, value: Any, words: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    base, directory = find_checkpoint(tmp_path_factory, "internvl"), tmp_path / "model"
    write_changed(Variant("internvl", field, value).change, base, directory)
    with pytest.raises(ConfigError, match=f"{directory}/config.json: text_config: {words}"):
        load_config(directory)


@pytest.mark.parametrize("name", ["gpt_neox", "diffllama", "stablelm", "gpt2"])
def test_a_language_model_that_is_not_known(
    name: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Without the refusal some crash in the first step, and some answer nonsense."""
    base = find_checkpoint(tmp_path_factory, "internvl")
    result = try_changed(with_language_model(name, base), base, tmp_path / "model")
    assert (result.kind, f"model_type '{name}' is not supported as a language model" in result.reason) == ("refused", 1)


@pytest.mark.parametrize("name", ["phi3", "cohere2", "gemma3_text", "gemma2", "gpt_oss", "llama4_text"])
def test_other_language_models(name: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    base = find_checkpoint(tmp_path_factory, "internvl")
    assert try_changed(with_language_model(name, base), base, tmp_path / "model").kind == "equal"


def test_an_attention_that_passes_more_than_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later transformers may have attention take more; that is no answer, but a word in a line."""
    monkeypatch.setattr(loading, "_KNOWN", loading._KNOWN - {"s_aux"})
    internvl_with(tmp_path, transformers.GptOssConfig, **SIZES, max_position_embeddings=131072)
    loop = Loop(make_adapter(tmp_path, torch.float32))
    try:
        with pytest.raises(ConfigError, match=r"language model \(gpt_oss\) has an attention with s_aux, which is not"):
            loop.generate(requests_of(load_processor(tmp_path), CASES), 1)
    finally:
        loop.close()


@settings(max_examples=12)
@given(family=st.sampled_from(FAMILIES), data=st.data())
def test_any_field(family: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All of them are tried by `text_variants.py` as a command."""
    base = find_checkpoint(tmp_path_factory, family)
    variant = data.draw(st.sampled_from(list(variants(family, base))))
    result = try_changed(variant.change, base, tmp_path_factory.mktemp("variant") / "model")
    assert result.right, (variant, result)
