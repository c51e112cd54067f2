"""FlashCodec's streams beside the default one, on which other libraries work, over stand-ins for a GPU's libraries."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from flashcodec_clips import ClipMaker
from gpu_runs import expected, run

from flashcodec import _core

PROCESS = Path(__file__).with_name("gpu_streams_process.py")
LONG = "h264_long.mp4"

pytestmark = [
    pytest.mark.usefixtures("stand_in"),
    pytest.mark.skipif(not _core.has_gpu_kernels(), reason="FlashCodec was built without nvcc"),
]


@pytest.mark.parametrize("decode_on", ["gpu", "cpu"])
def test_work_on_the_default_stream_delays_nothing_and_reads_what_it_was_given(clip: ClipMaker, decode_on: str) -> None:
    pytest.importorskip("PIL")
    command = [sys.executable, str(PROCESS), str(clip("h264_bframes.mp4")), decode_on]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    others = expected(clip("h264_bframes.mp4"), [30, 60, 90])
    assert json.loads(done.stdout) == {"waited": False, "kept": True, "others": others}


def test_only_ffmpeg_s_way_goes_behind_the_default_stream(clip: ClipMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [0, 400]
    assert run(clip(LONG), "cuda:0", frames, "gpu")["behind_default"] == 0
    monkeypatch.setenv("FLASHCODEC_NVDEC", "ffmpeg")  # FFmpeg sees no GPU here, but is asked first
    assert run(clip(LONG), "cuda:0", list(range(0, 800, 9)))["behind_default"] > 0
