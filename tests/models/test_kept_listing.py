"""What the files of a folder have told is kept, and learned again when one of them or the kept file is another."""

import os
from pathlib import Path

import pytest

from unifiedserve.models.kept_listing import kept_listing


class Learner:
    """Count how often something was learned, and learn the names of the files."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, folder: str) -> object:
        self.times += 1
        return {frozenset({"torch"}): {path.name: {"A", "B"} for path in sorted(Path(folder).rglob("*.py"))}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    (folder / "llama").mkdir(parents=True)
    (folder / "llama" / "modeling_llama.py").write_text("__all__ = ['A']")
    return folder


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "kept"


def test_it_is_learned_once(folder: Path, kept: Path) -> None:
    learn = Learner()
    first, second = (kept_listing(str(folder), kept, learn) for _ in range(2))
    assert first == second == {frozenset({"torch"}): {"modeling_llama.py": {"A", "B"}}}
    assert learn.times == 1


@pytest.mark.parametrize("change", ["another file", "longer", "written again", "gone"])
def test_changed_files_are_read_again(folder: Path, kept: Path, change: str) -> None:
    learn, path = Learner(), folder / "llama" / "modeling_llama.py"
    kept_listing(str(folder), kept, learn)
    match change:
        case "another file":
            (folder / "llama" / "configuration_llama.py").touch()
        case "longer":
            path.write_text("__all__ = ['A', 'C']")
        case "written again":
            os.utime(path, ns=(1, 1))
        case "gone":
            path.unlink()
    assert kept_listing(str(folder), kept, learn) == Learner()(str(folder))
    assert learn.times == 2


def test_what_python_compiles_changes_nothing(folder: Path, kept: Path) -> None:
    learn = Learner()
    kept_listing(str(folder), kept, learn)
    (folder / "llama" / "__pycache__").mkdir()
    (folder / "llama" / "__pycache__" / "modeling_llama.cpython-311.pyc").touch()
    kept_listing(str(folder), kept, learn)
    assert learn.times == 1


@pytest.mark.parametrize("place", [0, 31, 32, -1])
def test_a_damaged_file_is_made_again(folder: Path, kept: Path, place: int) -> None:
    learn = Learner()
    kept_listing(str(folder), kept, learn)
    data = bytearray(kept.read_bytes())
    data[place] ^= 1
    kept.write_bytes(data)
    assert kept_listing(str(folder), kept, learn) == learn(str(folder))
    assert kept.read_bytes() != data


@pytest.mark.parametrize("size", [0, 10, 40])
def test_a_file_cut_short_is_made_again(folder: Path, kept: Path, size: int) -> None:
    learn = Learner()
    kept_listing(str(folder), kept, learn)
    os.truncate(kept, size)
    kept_listing(str(folder), kept, learn)
    kept_listing(str(folder), kept, learn)
    assert learn.times == 2


def test_it_goes_without_a_place_to_keep_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    learn = Learner()
    for _ in range(2):
        assert kept_listing(str(folder), tmp_path / "file" / "kept", learn)
    assert learn.times == 2
    assert {path.name for path in tmp_path.iterdir()} == {"file", "models"}
