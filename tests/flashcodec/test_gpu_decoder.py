"""VideoDecoder with tensors on a GPU: over stand-ins for it, and on a real one."""

import subprocess
import sys
from pathlib import Path

import pytest
from flashcodec_clips import ClipMaker

PROCESS = Path(__file__).with_name("gpu_decoder_process.py")


def check(path: Path, *options: str) -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, str(PROCESS), str(path), *options], capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.returncode) == ("the same\n", 0), done.stderr


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("name", ["h264_bframes.mp4", "vp9.webm"])
def test_frames_are_those_of_a_decoder_on_the_host(clip: ClipMaker, name: str) -> None:
    check(clip(name), "--stand-in")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["h264_bframes.mp4", "hevc_opengop.mp4", "vp9.webm"])
def test_frames_on_a_gpu_are_those_on_the_host(clip: ClipMaker, name: str) -> None:
    check(clip(name))
