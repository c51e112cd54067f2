"""Outputs in a GPU's memory, over stand-ins for the driver."""

import subprocess
import sys
from pathlib import Path

import fake_cuda
import numpy as np
import pytest
from flashcodec_clips import ClipMaker
from gpu_process import CALLS
from gpu_runs import CUDA, expected, run

import flashcodec
from flashcodec import FlashCodec, RGBLayout, VideoDecoder, _core

POINTS = Path(__file__).with_name("gpu_points.py")


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
        "live": [0, 0],
        "calls": dict.fromkeys(CALLS, 0),
        "behind_default": 0,
    }


@pytest.mark.usefixtures("stand_in")
def test_a_video_is_spread_over_the_engines_of_all_gpus(clip: ClipMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUDA_GPUS", "AB")
    frames = list(range(0, 800, 27))
    found = run(clip("h264_long.mp4"), "cuda:1,cuda:0", frames, "cpu")
    assert found["frames"] == expected(clip("h264_long.mp4"), frames)
    assert found["chosen"] == ["cores for cuda:1", "cores for cuda:0"]
    assert found["places"] == [[CUDA, 0], [CUDA, 1]]
    assert (found["fallbacks"], found["live"]) == (0, [0, 0])


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
