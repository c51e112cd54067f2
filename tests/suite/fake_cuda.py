"""The stand-in for libcuda, tests/fakes/cuda.cpp, compiled where a test asks for it and found before the real one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "fakes" / "cuda.cpp"
LIBRARY = "libcuda.so.1"


def cxx() -> str:
    """Return the C++ compiler; skips the test if there is none."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    return compiler


def build(folder: Path, *flags: str) -> Path:
    """Compile the stand-in into a folder, for `use`."""
    options = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags]
    subprocess.run([cxx(), *options, "-o", folder / LIBRARY, SOURCE], check=True)
    return folder


def use(libraries: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make processes that are started from now on find it, with its GPUs' memory in the folder `state`."""
    paths = [str(libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join(paths))
    monkeypatch.setenv("FAKE_CUDA_FOLDER", str(state))
