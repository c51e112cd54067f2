"""JPEGs by a GPU's hardware, over stand-ins for its libraries: what is laid out, and what is left to Pillow."""

import subprocess
import sys
from pathlib import Path

import fake_cuda
import pytest

from flashcodec import _core

PROCESS = Path(__file__).with_name("gpu_images_process.py")


def run(*code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *code], capture_output=True, text=True, timeout=120)


@pytest.fixture
def hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not _core.has_gpu_kernels():
        pytest.skip("FlashCodec was built without nvcc")
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    fake_cuda.use(fake_cuda.build_jpeg(fake_cuda.build(libraries)), tmp_path, monkeypatch)


@pytest.mark.usefixtures("hardware")
def test_pictures_are_laid_out_as_on_the_host() -> None:
    pytest.importorskip("PIL")
    done = run(str(PROCESS))
    assert (done.stdout, done.returncode) == ("the same\n", 0), done.stderr


@pytest.mark.usefixtures("hardware")
def test_a_gpu_without_such_hardware_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVJPEG_FAULT", "create")
    done = run("-c", "from flashcodec.image import GpuImages; GpuImages(0)")
    assert "cuda:0 has no hardware for JPEG" in done.stderr


def test_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    fake_cuda.use(fake_cuda.build(libraries), tmp_path, monkeypatch)
    done = run("-c", "from flashcodec.image import GpuImages; GpuImages(0)")
    if done.returncode == 0:
        pytest.skip("this machine has nvJPEG")
    assert "no nvJPEG here" in done.stderr or "built without nvcc" in done.stderr or "no hardware" in done.stderr
