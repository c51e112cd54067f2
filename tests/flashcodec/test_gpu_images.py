"""JPEGs by a GPU's hardware, over stand-ins for its libraries: what is laid out, and what is left to Pillow."""

import json
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
@pytest.mark.parametrize(
    ("others", "batches"),
    [([], [1, 5]), (["0:progressive", "3:progressive"], [1, 3]), (["1:cut", "4:cut"], None)],
    ids=["sound", "progressive", "damaged"],
)
def test_what_is_at_hand_at_the_same_time_is_decoded_together(
    monkeypatch: pytest.MonkeyPatch, others: list[str], batches: list[int] | None
) -> None:
    """The first picture alone, and those that come meanwhile at once; what is left to Pillow spoils no other."""
    pytest.importorskip("PIL")
    monkeypatch.setenv("FAKE_NVJPEG_GATHER", "6")
    done = run(str(PROCESS), "6", *others)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    left = {int(other[0]) for other in others}
    assert found["results"] == ["left to Pillow" if number in left else "the same" for number in range(6)]
    if batches is not None:
        assert found["batches"] == batches


@pytest.mark.usefixtures("hardware")
def test_nvjpeg_is_found_where_pip_puts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "packages/nvidia/cu13/lib"
    packages.mkdir(parents=True)
    (tmp_path / "libraries" / fake_cuda.JPEG).rename(packages / fake_cuda.JPEG)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    done = run("-c", "from flashcodec.image import GpuImages; GpuImages(0); print('found')")
    assert done.stdout == "found\n", done.stderr


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
