"""The tiny checkpoint, and what becomes of directories that are no checkpoint."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from generation_cases import CASES
from reference import Reference

from unifiedserve.errors import ConfigError
from unifiedserve.memory.checkpoint import weight_files
from unifiedserve.models import tiny
from unifiedserve.models.hub import resolve_model
from unifiedserve.models.registry import load_config, load_processor
from unifiedserve.models.tiny import make_checkpoint

REPOSITORY = Path(__file__).resolve().parents[2]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_the_same_seed_makes_the_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    again, other = make_checkpoint(tmp_path / "again"), make_checkpoint(tmp_path / "other", seed=1)
    files = sorted(path.name for path in checkpoint.iterdir())
    assert files == sorted(path.name for path in again.iterdir())
    assert all((checkpoint / name).read_bytes() == (again / name).read_bytes() for name in files)
    assert (checkpoint / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()


def test_size(hf: Reference) -> None:
    assert 2e6 < sum(parameter.numel() for parameter in hf.model.parameters()) < 3e6


@pytest.mark.parametrize("name", CASES)
def test_greedy_answers_are_varied_and_robust(name: str, hf: Reference) -> None:
    """Many different tokens, and the best far enough above the second for float32 rounding not to matter."""
    out = hf.model.generate(
        **hf.inputs(CASES[name]), max_new_tokens=32, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    best, second = torch.cat(out.logits).topk(2).values.T
    assert len(set(out.sequences[0, -len(best) :].tolist())) >= 8
    assert (best - second).min() > 1e-3


def test_answers_depend_on_the_pictures(hf: Reference) -> None:
    answers = [hf.generate(case, 8) for case in CASES.values()]
    assert len({tuple(answer) for answer in answers}) == len(CASES)


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, whose imports are done."""
    monkeypatch.setattr(sys, "argv", ["tiny", str(tmp_path / "made")])
    runpy.run_path(tiny.__file__, run_name="__main__")
    assert load_processor(tmp_path / "made").vocab_size == 1040
    monkeypatch.setattr(sys, "argv", ["tiny"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(tiny.__file__, run_name="__main__")


def test_the_engine_does_without_torchvision(checkpoint: Path) -> None:
    """It may be missing, or be built for another torch: transformers would import it, and fail."""
    result = python(
        "-c",
        "import sys\n"
        "from pathlib import Path\n"
        "from unifiedserve.models.registry import load_processor\n"
        "import unifiedserve.models.families.qwen2_5_vl.adapter\n"
        f"load_processor(Path({str(checkpoint)!r}))\n"
        "assert 'torchvision' not in sys.modules, 'imported'\n",
    )
    assert result.returncode == 0, result.stderr


def test_structs_need_no_torch() -> None:
    result = python("-c", "import sys, unifiedserve.messages.media; assert 'torch' not in sys.modules")
    assert result.returncode == 0, result.stderr


def test_unsupported_family(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ConfigError, match=r"'bert' is not supported; supported are .*internvl.*qwen2_5_vl"):
        load_processor(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("{", r"config\.json: "),
        ("[]", "expected a JSON object"),
        ("{}", "model type None is not supported"),
        ('{"model_type": "qwen2_5_vl", "hidden_size": "wide"}', "hidden_size"),
    ],
)
def test_bad_config(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path)


def test_no_tokenizer(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "without")
    (directory / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot load the tokenizer"):
        load_processor(directory)
    (directory / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"no tokenizer \(tokenizer\.json or"):
        load_processor(directory)


def test_resolve_model(checkpoint: Path, tmp_path: Path) -> None:
    assert resolve_model(str(checkpoint)) == checkpoint
    for name in (str(tmp_path / "absent"), "./absent", "a/b/c"):
        with pytest.raises(ConfigError, match="no such model directory"):
            resolve_model(name)
    with pytest.raises(ConfigError, match="neither a directory nor a model that can be downloaded"):
        resolve_model("nobody/nothing")


@pytest.mark.parametrize(
    "rules", [{"patch_size": 0}, {"merge_size": -1}, {"max_pixels": 2**63}, {"size": []}, {"size": "x"}]
)
def test_absurd_rules_for_images_are_one_line(tmp_path: Path, rules: dict[str, object]) -> None:
    make_checkpoint(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | rules))
    with pytest.raises(ConfigError) as caught:
        load_processor(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", 7, None, ["model.safetensors"]])
def test_an_index_lists_files_of_its_folder_only(tmp_path: Path, name: object) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ConfigError, match="is no file of this folder"):
        weight_files(tmp_path)


def test_a_whole_file_of_weights_excludes_others(tmp_path: Path) -> None:
    """Folders hold the same weights in an author's own format, too, or those from before they were quantised."""
    for name in ("consolidated.safetensors", "model-00001-of-00001.safetensors"):
        (tmp_path / name).touch()
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-00001-of-00001.safetensors"}}')
    assert [path.name for path in weight_files(tmp_path)] == ["model-00001-of-00001.safetensors"]
    (tmp_path / "model.safetensors").touch()
    assert [path.name for path in weight_files(tmp_path)] == ["model.safetensors"]


def test_weights_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=r"no \.safetensors file"):
        weight_files(tmp_path)
