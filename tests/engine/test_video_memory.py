"""What NVDEC's decoders take is foretold by the rules by which FlashCodec keeps them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import fake_cuda
import pytest
from once import once, run_folder

from flashcodec import _core
from unifiedserve.config import EngineConfig
from unifiedserve.device.cuda import CudaDevice, unseen

ENGINES = "import sys, flashcodec; print(flashcodec.FlashCodec(int(sys.argv[1]), device='cuda:0').num_engines)"
BACKEND = fake_cuda.FLASHCODEC / "engines" / "nvdec" / "nvdec_backend.cpp"
DECODER = unseen.SURFACES * unseen.SURFACE_BYTES


@pytest.fixture
def gpu(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is none, with NVDEC, for processes that are started from now on."""
    if not _core.has_gpu_kernels():
        pytest.skip("FlashCodec was built without nvcc")
    fake_cuda.use(once(run_folder(tmp_path_factory) / "fake-gpu-of-videos", _build), tmp_path, monkeypatch)


def _build(folder: Path) -> None:
    folder.mkdir()
    fake_cuda.build_decoders(fake_cuda.build(folder))


def decoders_of(threads: int) -> int:
    """Return how many decoders FlashCodec's engines have at once, beside as many cores as there are threads."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", ENGINES, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True)
    return int(json.loads(done.stdout)) - threads


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("threads", [1, 3, 100])
def test_all_decoders_are_counted(threads: int) -> None:
    decoders = decoders_of(threads)
    assert decoders >= 1
    assert CudaDevice(EngineConfig.of(vision_threads=threads)).video_bytes() == decoders * DECODER
    if threads == 100:
        assert CudaDevice(EngineConfig()).video_bytes() == decoders * DECODER


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("options", [{"decode_on": "cpu"}, {"video_decoder": "torchcodec"}])
def test_where_cores_decode_there_are_none(options: dict[str, str]) -> None:
    assert CudaDevice(EngineConfig.of(**options)).video_bytes() == 0


def test_without_a_video_library_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Path("/usr/lib/x86_64-linux-gnu/libnvcuvid.so.1").exists():
        pytest.skip("this machine has a real libnvcuvid")
    assert CudaDevice(EngineConfig()).video_bytes() == 0


def test_a_decoder_has_as_many_surfaces_as_flashcodec_counts() -> None:
    (surfaces,) = re.findall(r"kSurfaces = (\d+);", BACKEND.read_text())
    (decoders,) = re.findall(r"kDecodersPerUnit = (\d+);", BACKEND.read_text())
    assert (int(decoders), int(surfaces)) == (unseen.DECODERS_A_UNIT, unseen.SURFACES)
    assert 0.8e9 < unseen.decoders_bytes(7, 0) < 0.9e9  # of an H100's units
