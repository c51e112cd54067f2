"""Frames in a GPU's memory on their way into pages, over stand-ins for the GPU's libraries and for its computing."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import fake_cuda
import pytest
from media import Clip
from once import once, run_folder
from PIL import Image
from vision_alone import Vision

from flashcodec import _core
from unifiedserve.memory.row_buffer import RowBuffer
from unifiedserve.messages.ticket import Ticket

PROCESS = Path(__file__).with_name("gpu_frames_process.py")
FRAMES = (0, 1, 3, 7, 4, 5, 6)


@pytest.fixture
def driver(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver without a video library."""
    fake_cuda.use(once(run_folder(tmp_path_factory) / "fake-driver", _build), tmp_path, monkeypatch)


@pytest.fixture
def nvdec(
    driver: None, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not _core.has_gpu_kernels():
        pytest.skip("FlashCodec was built without nvcc")
    fake_cuda.use(once(run_folder(tmp_path_factory) / "fake-video", _build_video), tmp_path, monkeypatch)


def _build(folder: Path) -> None:
    folder.mkdir()
    fake_cuda.build(folder)


def _build_video(folder: Path) -> None:
    folder.mkdir()
    fake_cuda.build_decoders(fake_cuda.build_jpeg(folder))


def run(path: Path, image: Path, *decode_on: str) -> list[dict[str, Any]]:
    """Return what is found of each way to decode, all in one process."""
    command = [sys.executable, str(PROCESS), str(path), str(image), ",".join(decode_on), *map(str, FRAMES)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()[-len(decode_on) :]]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.jpg"
    Image.effect_noise((120, 90), 50).convert("RGB").save(path)
    return path


class Expected(NamedTuple):
    units: list[str]
    image: str


@pytest.fixture
def expected(patches: RowBuffer, visual: RowBuffer, clips: Callable[[int], Clip], image: Path) -> Expected:
    vision = Vision(patches, visual)
    try:
        vision.ask(Ticket(1, 0.0), clips(8).path, FRAMES)
        vision.ask_image(Ticket(2, 0.0), image)
        vision.finish()
    finally:
        vision.stage.close()
    found = {unit: hashlib.md5(rows.numpy().tobytes()).hexdigest() for unit, rows in vision.units.items()}
    return Expected([found[1, i] for i in range(len(found) - 1)], found[2, 0])


@pytest.mark.usefixtures("nvdec")
def test_pages_hold_what_cores_would_have_made(clips: Callable[[int], Clip], image: Path, expected: Expected) -> None:
    ways = {"gpu": "gpu", "cpu": "cpu", "fastest": "cpu"}
    for (decode_on, on), found in zip(ways.items(), run(clips(8).path, image, *ways), strict=True):
        assert (found["units"], found["decoded_on"], found["errors"]) == (expected.units, [on], {}), decode_on
        assert found["logged"] == []
        # the stand-in's hardware for JPEG makes a picture of its own
        assert (found["image"] == expected.image) == (decode_on != "gpu")


@pytest.mark.usefixtures("nvdec")
def test_another_gpu_decodes_for_the_memory_of_the_first_one(
    clips: Callable[[int], Clip], image: Path, expected: Expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CUDA_GPUS", "AB")
    (found,) = run(clips(8).path, image, "gpu@cuda:1")
    assert (found["units"], found["decoded_on"], found["errors"]) == (expected.units, ["gpu"], {})
    assert 1 in found["gpus"]


@pytest.mark.usefixtures("driver")
def test_without_a_video_library_cores_decode_and_the_log_says_why(
    clips: Callable[[int], Clip], image: Path, expected: Expected
) -> None:
    if Path("/usr/lib/x86_64-linux-gnu/libnvcuvid.so.1").exists():
        pytest.skip("this machine has a real libnvcuvid")
    found, refused = run(clips(8).path, image, "fastest", "gpu")
    assert (found["units"], found["image"], found["decoded_on"]) == (*expected, ["cpu"])
    (line,) = found["logged"]
    assert line.startswith("videos are decoded on cores and copied to cuda:0: NVDEC cannot be used")
    assert refused["refused"].startswith("--decode-on gpu: NVDEC cannot be used")
