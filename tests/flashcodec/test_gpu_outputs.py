"""Outputs in a GPU's memory: over stand-ins for the driver, whose NVDEC FFmpeg cannot use, so that cores take over."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_cuda
import numpy as np
import pytest
from flashcodec_clips import ClipMaker

import flashcodec
from flashcodec import FlashCodec, RGBLayout, VideoDecoder, _core

PROCESS = Path(__file__).with_name("gpu_process.py")
POINTS = Path(__file__).with_name("gpu_points.py")
CUDA = 2  # DLPack's number


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_cuda.build_decoders(fake_cuda.build(tmp_path_factory.mktemp("fake-gpu")))


def run(path: Path, device: str, frames: list[int], decode_on: str = "fastest") -> dict[str, Any]:
    command = [sys.executable, str(PROCESS), str(path), device, *map(str, frames), "--decode-on", decode_on]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def expected(path: Path, frames: list[int]) -> list[str]:
    decoder = VideoDecoder(path, size=(48, 64))
    return [hashlib.md5(np.ascontiguousarray(decoder[i]).tobytes()).hexdigest() for i in frames]


@pytest.fixture
def stand_in(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_cuda.use(libraries, tmp_path, monkeypatch)
    return libraries


@pytest.mark.usefixtures("stand_in")
def test_short_clips_are_decoded_by_cores(clip: ClipMaker) -> None:
    frames = [3, 50, 149, 7]
    found = run(clip("h264_bframes.mp4"), "cuda:0", frames)
    assert found == {
        "frames": expected(clip("h264_bframes.mp4"), frames),
        "places": [[CUDA, 0]],
        "fallbacks": 0,
        "chosen": ["cores for cuda:0"],
        "decoded_on": ["cpu"],
        "live": 0,
    }


@pytest.mark.usefixtures("stand_in")
def test_cores_take_over_where_nvdec_refuses(clip: ClipMaker) -> None:
    frames = list(range(0, 800, 9))
    found = run(clip("h264_long.mp4"), "cuda", frames)
    assert found.pop("fallbacks") > 0
    assert "NVDEC of cuda:0" in found.pop("chosen")
    assert found == {
        "frames": expected(clip("h264_long.mp4"), frames),
        "places": [[CUDA, 0]],
        "decoded_on": ["cpu"],
        "live": 0,
    }


@pytest.mark.usefixtures("stand_in")
def test_a_video_is_spread_over_the_engines_of_all_gpus(clip: ClipMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_GPUS", "AB")
    frames = list(range(0, 800, 9))
    found = run(clip("h264_long.mp4"), "cuda:1,cuda:0", frames, "cpu")
    assert found["frames"] == expected(clip("h264_long.mp4"), frames)
    assert found["chosen"] == ["cores for cuda:1", "cores for cuda:0"]
    assert found["places"] == [[CUDA, 0], [CUDA, 1]]
    assert (found["fallbacks"], found["live"]) == (0, 0)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("name", "error"), [("h264_bframes.mp4", "this FFmpeg cannot use cuda:0"), ("vp9.webm", "no GPU decodes it here")]
)
def test_an_error_where_only_the_gpu_may_decode(clip: ClipMaker, name: str, error: str) -> None:
    assert error in run(clip(name), "cuda:0", [0, 5], "gpu")["error"]


@pytest.mark.usefixtures("stand_in")
def test_a_gpu_that_is_not_there(clip: ClipMaker) -> None:
    error = run(clip("h264_bframes.mp4"), "cuda:3", [0])["error"]
    assert error == (
        "RuntimeError: there is no cuda:3: this process sees 1 GPU; CUDA_VISIBLE_DEVICES says which a process sees"
    )


def test_no_video_library(clip: ClipMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "driver"
    folder.mkdir()
    fake_cuda.use(fake_cuda.build(folder), tmp_path, monkeypatch)
    if Path("/usr/lib/x86_64-linux-gnu/libnvcuvid.so.1").exists():
        pytest.skip("this machine has a real libnvcuvid")
    error = run(clip("h264_bframes.mp4"), "cuda", [0])["error"]
    assert "NVDEC cannot be used" in error
    assert "NVIDIA_DRIVER_CAPABILITIES must have 'video'" in error


def test_no_driver(clip: ClipMaker) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    with pytest.raises(RuntimeError, match="no NVIDIA driver here"):
        FlashCodec(device="cuda")
    with FlashCodec() as codec:  # nothing of it is left
        codec.add_decoding_request(clip("h264_bframes.mp4"), [0], RGBLayout(16, 16))
        assert codec.get_decoding_output(60) is not None


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "cuda:x", "", [], ["cpu"], ["cuda", "cuda:0"]])
def test_a_device_that_cannot_be(device: str | list[str]) -> None:
    with pytest.raises(ValueError, match='device must be "cpu", "cuda", "cuda:N" or a list of different GPUs'):
        flashcodec.FlashCodec(device=device)


def check_points() -> None:
    done = subprocess.run([sys.executable, str(POINTS)], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "160 pictures are the same\n"


@pytest.mark.usefixtures("stand_in")
def test_pictures_are_laid_out_in_streams_and_memory_of_a_stand_in() -> None:
    if _core.has_gpu_kernels():
        check_points()
    else:
        with pytest.raises(subprocess.CalledProcessError) as raised:
            check_points()
        assert "FlashCodec was built without nvcc" in raised.value.stderr


@pytest.mark.gpu
def test_a_gpu_lays_pictures_out_as_cores_do() -> None:
    check_points()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["h264_long.mp4", "hevc_opengop.mp4", "h264_bframes.mp4"])
def test_nvdec_decodes_what_cores_decode(clip: ClipMaker, name: str) -> None:
    torch = pytest.importorskip("torch")
    stream = flashcodec.analyse_bitstream(clip(name))
    frames = list(range(0, stream.num_frames, 7))
    with FlashCodec(device="cuda") as codec:
        request = codec.add_decoding_request(stream, frames, RGBLayout(48, 64), decode_on="gpu")
        expected_frames = VideoDecoder(stream, size=(48, 64))
        left = len(frames)
        while left:
            output = codec.get_decoding_output(60)
            assert output is not None
            assert output.request == request
            frame = torch.from_dlpack(output.gpu_data).cpu().numpy()[0]
            np.testing.assert_array_equal(frame, expected_frames[frames[output.first]])
            left -= output.count
        assert codec.fallbacks == 0
