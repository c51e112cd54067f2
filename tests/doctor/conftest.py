"""A machine with a GPU, as far as the doctor can see: fake libraries compiled here and found first."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Protocol

import fake_cuda
import pytest

FAKES = Path(__file__).parent / "fakes"
HEADER = Path("/usr/include/ffnvcodec/dynlink_cuviddec.h")


class Compile(Protocol):
    """Compiles a source file of the fakes folder; returns the output."""

    def __call__(self, source: str, output: Path, *flags: str) -> Path: ...


@pytest.fixture(scope="session")
def compile_c() -> Compile:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    if not HEADER.exists():
        pytest.skip("no ffnvcodec headers")

    def run(source: str, output: Path, *flags: str) -> Path:
        warnings = ["-Wall", "-Wextra", "-Werror"]
        subprocess.run([compiler, "-O1", *warnings, *flags, "-o", output, FAKES / source], check=True)
        return output

    return run


@pytest.fixture(scope="session")
def fake_libraries(compile_c: Compile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fake-gpu")
    compile_c("nvcuvid.c", folder / "libnvcuvid.so.1", "-shared", "-fPIC")
    return fake_cuda.build(folder)


@pytest.fixture
def fake_gpu(fake_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make probes see the fake GPU; returns the folder in which it keeps its state."""
    fake_cuda.use(fake_libraries, tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", f"{FAKES}{os.pathsep}{os.environ['PATH']}")
    return tmp_path
