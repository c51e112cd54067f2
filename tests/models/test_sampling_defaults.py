"""Requests that do not say how tokens are chosen get what the checkpoint's authors recommend, or the server's owner."""

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import transformers
from builders import chat_template, save, text_sizes, tokenizer
from gguf import GGMLQuantizationType as Kind
from gguf_files import write_gguf

from unifiedserve.config.checkpoint import CheckpointOptions
from unifiedserve.errors import ConfigError
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.models.gguf.folder import gguf_folder
from unifiedserve.models.sampling_defaults import sampling_defaults

# As these models' pages have them
QWEN2_5_VL = {
    "bos_token_id": 151643,
    "pad_token_id": 151643,
    "do_sample": True,
    "eos_token_id": [151645, 151643],
    "repetition_penalty": 1.05,
    "temperature": 0.000001,
    "transformers_version": "4.49.0",
}
GEMMA_3 = {
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "do_sample": True,
    "eos_token_id": [1, 106],
    "top_k": 64,
    "top_p": 0.95,
}


def _defaults(folder: Path, generation: Any = None, **options: str) -> SamplingParams:
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return sampling_defaults(folder, CheckpointOptions(**options))


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        (None, SamplingParams()),
        (QWEN2_5_VL, SamplingParams(temperature=0.000001, repetition_penalty=1.05)),
        (GEMMA_3, SamplingParams(top_k=64, top_p=0.95)),
        ({"temperature": None, "top_k": 20, "max_new_tokens": 512, "do_sample": False}, SamplingParams(top_k=20)),
    ],
)
def test_the_checkpoints_file(generation: Any, expected: SamplingParams, tmp_path: Path) -> None:
    assert _defaults(tmp_path, generation) == expected
    expected.check()


@pytest.mark.parametrize("name", ["none", "vllm"])
def test_the_file_is_left_out(name: str, tmp_path: Path) -> None:
    assert _defaults(tmp_path, GEMMA_3, generation_config=name) == SamplingParams()


def test_another_folders_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "generation_config.json").write_text(json.dumps(QWEN2_5_VL))
    assert _defaults(tmp_path, GEMMA_3, generation_config=str(other)).repetition_penalty == 1.05


def test_values_over_the_files(tmp_path: Path) -> None:
    found = _defaults(tmp_path, GEMMA_3, override_generation_config='{"top_k": 1, "min_p": 0.1}')
    assert found == SamplingParams(top_k=1, top_p=0.95, min_p=0.1)


@pytest.mark.parametrize(
    ("generation", "options", "message"),
    [
        (
            {"top_p": 7},
            {},
            r"generation_config\.json: top_p: expected .*<= 1\.0; --generation-config none leaves it out",
        ),
        ({"temperature": "warm"}, {}, "temperature: expected"),
        ([1], {}, "expected a JSON object"),
        (None, {"generation_config": "nowhere"}, r"nowhere/generation_config\.json: no such file"),
        (None, {"override_generation_config": "hot"}, "override-generation-config: expected a JSON object like"),
        (None, {"override_generation_config": "[]"}, "override-generation-config: expected a JSON object like"),
        (None, {"override_generation_config": '{"top_q": 1}'}, "top_q is none of temperature, top_p"),
        (None, {"override_generation_config": '{"top_k": -7}'}, "override-generation-config: top_k: expected"),
    ],
)
def test_what_is_refused(generation: Any, options: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        _defaults(tmp_path, generation, **options)


def test_a_gguf_files_recommendations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the keys of llama.cpp, whose numbers have 32 bits."""
    write = gguf.GGUFWriter.write_header_to_file

    def with_sampling(writer: gguf.GGUFWriter) -> None:
        writer.add_float32("general.sampling.temp", 0.7)
        writer.add_int32("general.sampling.top_k", 20)
        writer.add_float32("general.sampling.penalty_repeat", 1.05)
        write(writer)

    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", with_sampling)
    tokens = tokenizer()
    checkpoint = tmp_path / "checkpoint"
    save(checkpoint, transformers.LlamaConfig(**text_sizes(tokens)), tokens, chat_template({}))
    file = write_gguf(tmp_path / "model.gguf", checkpoint, lambda name: Kind.F32)
    folder = gguf_folder(file, tmp_path / "cache")
    assert _defaults(folder) == SamplingParams(temperature=0.7, top_k=20, repetition_penalty=1.05)
