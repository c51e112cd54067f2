"""The two packages that are built from this repository agree where they must."""

from pathlib import Path

import pytest
from project_files import PACKAGING, REPOSITORY, project
from scikit_build_core.build import prepare_metadata_for_build_wheel

import unifiedserve

WHOLE, ALONE = project(), project("flashcodec")


@pytest.mark.parametrize("field", ["dynamic", "requires-python", "license", "dependencies", "entry-points"])
def test_both_say_the_same(field: str) -> None:
    assert ALONE["project"][field] == WHOLE["project"][field]


def test_both_are_built_alike() -> None:
    assert ALONE["build-system"] == WHOLE["build-system"]
    assert ALONE["tool"]["scikit-build"]["cmake"]["version"] == WHOLE["tool"]["scikit-build"]["cmake"]["version"]


@pytest.mark.parametrize("folder", [".", "flashcodec"])
def test_the_version_is_that_of_the_code(folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(REPOSITORY / folder)
    metadata = prepare_metadata_for_build_wheel(str(tmp_path))
    assert f"\nVersion: {unifiedserve.__version__}\n" in (tmp_path / metadata / "METADATA").read_text()


def test_flashcodec_alone_has_its_command_and_nothing_of_the_server() -> None:
    command = WHOLE["project"]["scripts"]["flashcodec"]
    assert ALONE["project"]["scripts"] == {"flashcodec": command}
    assert ALONE["project"]["optional-dependencies"]["cli"] == WHOLE["project"]["optional-dependencies"]["cli"]
    built = ALONE["tool"]["scikit-build"]
    assert built["cmake"]["define"]["UNIFIED_PACKAGES"] == "flashcodec"
    assert [(REPOSITORY / "flashcodec" / path).resolve() for path in built["wheel"]["packages"]] == [
        REPOSITORY / path for path in WHOLE["tool"]["scikit-build"]["wheel"]["packages"] if path.endswith("/flashcodec")
    ]


def test_wheels_of_both_carry_the_same_ffmpeg() -> None:
    whole, alone = WHOLE["tool"]["cibuildwheel"], ALONE["tool"]["cibuildwheel"]
    assert {**whole, "test-command": ""} == {**alone, "test-command": ""}
    script, prefix = whole["linux"]["before-all"].split()
    assert (REPOSITORY / script).stat().st_mode & 0o111
    assert whole["linux"]["environment"]["FFMPEG_ROOT"] == prefix
    for tried in whole, alone:
        assert "{project}/packaging/wheels/try_wheel.py" in tried["test-command"]
    assert (PACKAGING / "wheels" / "try_wheel.py").exists()


def test_wheels_are_built_for_no_python_that_is_refused() -> None:
    oldest = WHOLE["project"]["requires-python"].removeprefix(">=").replace(".", "")
    assert min(WHOLE["tool"]["cibuildwheel"]["build"]) == f"cp{oldest}-*"
