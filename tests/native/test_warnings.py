"""A compiler's warning is an error while the C++ cores are worked on, and keeps no user from building them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pybind11
import pytest

from unifiedserve.doctor.libraries import find_program

ROOT = Path(__file__).resolve().parents[2]
#: all that compiles C++
TARGETS = {"flashcodec_core", "flashcodec_gpu", "flashcodec_fuzz", "ipc_buffers_core", "ipc_buffers_fuzz"}
TARGETS |= {"unifiedserve_core", "mutated_worker"}


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build")


def compilers(build: Path, *defines: str) -> dict[str, list[str]]:
    """Configure all packages and return how each target compiles, as a command without its files."""
    command = [str(find_program("cmake")), "-S", str(ROOT), "-B", str(build), "-DUNIFIED_FUZZ=ON"]
    command += ["-G", "Ninja"] if find_program("ninja") else []
    command += [f"-Dpybind11_DIR={pybind11.get_cmake_dir()}", f"-DPython_EXECUTABLE={sys.executable}"]
    forgotten = ["-UUNIFIED_LENIENT", "-USKBUILD_STATE"]
    subprocess.run([*command, *forgotten, *defines], check=True)
    found: dict[str, list[str]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        output = words.index("-o")
        found.setdefault(Path(words[output + 1].partition(".dir/")[0]).name, words[:output])
    return found


@pytest.mark.parametrize(
    ("defines", "fails"),
    [([], True), (["-DUNIFIED_LENIENT=ON"], False), (["-DSKBUILD_STATE=wheel"], False)],
    ids=["developer", "lenient", "wheel"],
)
def test_a_warning_is_an_error_for_developers_only(
    build: Path, tmp_path: Path, defines: list[str], fails: bool
) -> None:
    source = tmp_path / "warned.cpp"
    source.write_text("void warned() { int unused; }\n")
    commands = compilers(build, *defines)
    assert commands.keys() >= TARGETS
    for target, command in commands.items():
        done = subprocess.run([*command, "-fsyntax-only", source], cwd=tmp_path, capture_output=True, text=True)
        assert "unused" in done.stderr, target
        assert (done.returncode != 0) == fails, (target, done.stderr)
