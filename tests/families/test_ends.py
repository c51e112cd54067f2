"""Answers end where those of `generate` do, whichever of a checkpoint's files names the tokens."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import reference
from cases import user
from checkpoints import find_checkpoint
from reference import Case

from unifiedserve.errors import ConfigError
from unifiedserve.models.registry import load_processor

CASE = Case([user("What is a river?")])
ANSWER = 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return find_checkpoint(tmp_path_factory, "internvl")


@pytest.fixture(scope="module")
def endless(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """Return the answer of a checkpoint that names no end."""
    folder = _with_ends(checkpoint, tmp_path_factory.mktemp("endless") / "model", None, None, {})
    return reference.load(folder).generate(CASE, ANSWER)


def _with_ends(checkpoint: Path, folder: Path, top: Any, text: Any, generation: dict[str, Any] | None) -> Path:
    """Copy a checkpoint with such an `eos_token_id` in config.json and its text_config, and a generation config."""
    shutil.copytree(checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    config["eos_token_id"], config["text_config"]["eos_token_id"] = top, text
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").unlink()
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


@pytest.mark.parametrize(
    ("top", "text", "generation"),
    [(5, None, None), (None, 5, None), (3, 5, None), ([9, 3], 5, None), (3, 5, {}), (3, 5, {"eos_token_id": 7})],
)
def test_where_answers_end(
    top: Any, text: Any, generation: dict[str, Any] | None, checkpoint: Path, endless: list[int], tmp_path: Path
) -> None:
    """The numbers are places in the answer, of the tokens that end it."""

    def token(place: Any) -> Any:
        if isinstance(place, list):
            return [token(each) for each in place]
        return None if place is None else endless[place]

    ends = {name: token(place) for name, place in generation.items()} if generation is not None else None
    folder = _with_ends(checkpoint, tmp_path / "model", token(top), token(text), ends)
    ours = load_processor(folder).eos_token_ids
    ended = next((place + 1 for place, given in enumerate(endless) if given in ours), ANSWER)
    assert endless[:ended] == reference.load(folder).generate(CASE, ANSWER)


@pytest.mark.parametrize("generation", [None, {}])
def test_the_tokenizers_end_where_no_config_names_one(
    generation: dict[str, Any] | None, checkpoint: Path, tmp_path: Path
) -> None:
    ours = load_processor(_with_ends(checkpoint, tmp_path / "model", None, None, generation))
    assert ours.eos_token_ids == (ours.tokenizer.eos_token_id,)
    names = tmp_path / "model" / "tokenizer_config.json"
    names.write_text(json.dumps(json.loads(names.read_text()) | {"eos_token": None}))
    assert load_processor(tmp_path / "model").eos_token_ids == ()


def test_an_end_that_is_no_token(checkpoint: Path, tmp_path: Path) -> None:
    folder = _with_ends(checkpoint, tmp_path / "model", None, None, {"eos_token_id": "</s>"})
    with pytest.raises(ConfigError, match=r"generation_config\.json: eos_token_id '</s>' must be"):
        load_processor(folder)
