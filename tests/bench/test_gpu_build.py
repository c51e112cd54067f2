"""The GPU bench's build gets past warnings of a compiler that nobody has tried, and counts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.gpu import machine
from bench.gpu.figures import Figures
from bench.gpu.items.build import build

PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(small LANGUAGES CXX)
add_library(small OBJECT small.cpp)
target_compile_options(small PRIVATE -Wall)
if(NOT UNIFIED_LENIENT)
  target_compile_options(small PRIVATE -Werror)
endif()
if(NOT DEFINED CMAKE_INTERPROCEDURAL_OPTIMIZATION OR CMAKE_INTERPROCEDURAL_OPTIMIZATION)
  message(FATAL_ERROR "Where there is no make, the linker would compile all of it on one core")
endif()
"""


def test_warnings_are_counted_and_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "small.cpp").write_text("void warned() { int first; int second; }\n")
    (tmp_path / "small").mkdir()
    (tmp_path / "small/_core.py").touch()
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(machine, "BUILD", tmp_path / "build")
    monkeypatch.setenv(machine.CARRIED_VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    build(Figures(tmp_path / "figures.json"), "small", "-O1")
    assert json.loads((tmp_path / "figures.json").read_text())["figures"]["warnings"] == 2
    assert "unused variable" in capfd.readouterr().out
