"""Calibration: sums are those of what transformers hands to each matrix, and what comes of a text is served."""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from builders_gemma import gemma3
from builders_qwen import qwen3_vl
from builders_scoring import llama4_text
from command_line import Failed
from reference import transformers

from unifiedserve.cli.app import main
from unifiedserve.cli.daemon import daemon
from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU
from unifiedserve.engine.weight_source import weight_source
from unifiedserve.models.calibration import WINDOW, Calibration
from unifiedserve.models.gguf.importance import read_importance, write_importance
from unifiedserve.models.loading import pretrained
from unifiedserve.models.registry import load_config
from unifiedserve.models.tiny import WORDS, make_checkpoint

TEXT = WORDS * 4


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("calibrated") / "tiny")


def mean_squares(values: list[torch.Tensor]) -> np.ndarray[Any, Any]:
    return torch.cat(values).double().square().mean(0).numpy()


def test_sums_are_of_what_transformers_multiplies(checkpoint: Path) -> None:
    """Its hidden states, normalised, are inputs of queries, keys and values; the tower and the head have none."""
    tokens = torch.randint(0, 1024, (2 * WINDOW + 7,), generator=torch.Generator().manual_seed(0))
    config = load_config(checkpoint)
    calibration = Calibration(pretrained(checkpoint, config, torch.float32))
    assert [*calibration.run(tokens.tolist())] == [WINDOW, 2 * WINDOW]
    squares = calibration.squares()
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).eval()
    decoder = model.get_decoder()
    with torch.inference_mode():
        seen = [
            decoder(input_ids=window[None], output_hidden_states=True).hidden_states
            for window in tokens[: 2 * WINDOW].split(WINDOW)
        ]
        for number, layer in enumerate(decoder.layers):
            expected = mean_squares([layer.input_layernorm(states[number][0]) for states in seen])
            for part in ("q", "k", "v"):
                sums, rows = squares[f"blk.{number}.attn_{part}.weight"]
                np.testing.assert_allclose(sums.numpy() / rows, expected, rtol=1e-4)
    parts = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    assert squares.keys() == {f"blk.{number}.{part}.weight" for number in range(len(decoder.layers)) for part in parts}
    assert calibration.unnamed == []


@pytest.mark.parametrize("make", [gemma3, qwen3_vl, llama4_text])
def test_a_model_finds_all_that_was_measured(
    make: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the names of its tensors are in memory and in its files."""
    (place := tmp_path / "checkpoint").mkdir()
    make(place)
    config = load_config(place)
    calibration = Calibration(pretrained(place, config, torch.float32))
    assert [*calibration.run([token % 128 for token in range(WINDOW)])] == [WINDOW]
    assert calibration.unnamed == []
    write_importance(tmp_path / "a.gguf", calibration.squares(), "text", WINDOW)
    options = EngineConfig.of(quantization="int4", importance=str(tmp_path / "a.gguf"))
    weight_source(options, place, config, CPU, "float32")
    assert not [message for message in caplog.messages if "has nothing of" in message]


def test_what_comes_of_a_text_is_served(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text(TEXT)
    monkeypatch.setattr("sys.argv", ["unifiedserve", "calibrate", str(checkpoint), "notes.txt", "--dtype", "float32"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    told = capsys.readouterr().out
    assert "written to tiny.imatrix.gguf: 28 matrices over" in told
    options = told.split("serve with: unifiedserve serve ")[1].split()
    assert options == [str(checkpoint), "--quantization", "int4", "--importance", "tiny.imatrix.gguf"]
    assert len(read_importance(Path("tiny.imatrix.gguf"))) == 28
    with daemon(*options, "--kv-cache-mib", "16") as (url, _):
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "ignore_eos": True}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).raise_for_status().json()
    assert answer["usage"]["completion_tokens"] == 3


def test_refuses_what_it_cannot_measure(
    error_of: Callable[..., str],
    failed: Failed,
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long, short = tmp_path / "long.txt", tmp_path / "short.txt"
    long.write_text(TEXT)
    short.write_text("a few words")
    model, output = str(checkpoint), ("--output", str(tmp_path / "a.gguf"))
    assert "no readable text" in error_of("calibrate", model, str(tmp_path / "none.txt"), *output)
    assert f"are too few; a window has {WINDOW}" in error_of("calibrate", model, str(short), *output)
    assert "no such model directory" in error_of("calibrate", str(tmp_path / "none"), str(long), *output)
    assert "it was made of" in error_of("calibrate", str(tmp_path / "a.gguf"), str(long), *output)
    nowhere = str(tmp_path / "no" / "a.gguf")
    assert f"{nowhere}: no file can be written" in error_of("calibrate", model, str(long), "--output", nowhere)
    (here := tmp_path / "here" / "here.imatrix.gguf").mkdir(parents=True)
    monkeypatch.chdir(here.parent)
    assert "here.imatrix.gguf: no file can be written" in error_of("calibrate", ".", str(long)), "the folder's name"
    config = tmp_path / "coded" / "config.json"
    config.parent.mkdir()
    config.write_text('{"quantization_config": {"quant_method": "awq"}}')
    assert "quantised already" in error_of("calibrate", str(config.parent), str(long), *output)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        code, _, said = failed("calibrate", model, str(long), *output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 2
    assert said.endswith("a.gguf: File too large\n"), "as on a full disk"
    assert not [*tmp_path.glob("*.gguf*"), *tmp_path.glob(".*")]
