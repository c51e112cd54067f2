"""Streams that do not tell how long their last frame is shown: it is one that can be had all the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flashcodec_clips import run_ffmpeg
from once import once, run_folder

import flashcodec
from flashcodec import VideoDecoder

# name -> frames, encoder arguments. FFmpeg gives packets of FLV and WMV no duration; "zero.mp4" is made to tell one
# of 0.
CLIPS = {
    "one.flv": (1, ["-c:v", "flv"]),
    "one.wmv": (1, ["-c:v", "wmv2"]),
    "zero.mp4": (1, ["-c:v", "mpeg4", "-use_editlist", "0"]),
    "one.mkv": (1, ["-c:v", "mpeg4"]),
    "five.flv": (5, ["-c:v", "flv"]),
    "five.wmv": (5, ["-c:v", "wmv2"]),
}
# Where boxes of MP4 tell a duration, in bytes from their names.
DURATIONS = {b"mvhd": 20, b"tkhd": 24, b"mdhd": 20, b"stts": 16}
WAYS: dict[str, Callable[[Path], Any]] = {
    "get_all_frames": lambda path: VideoDecoder(path).get_all_frames(),
    "torch": lambda path: pytest.importorskip("flashcodec.torch").VideoDecoder(str(path)).get_all_frames(),
    "in range": lambda path: whole_range(VideoDecoder(path)),
    "at a rate": lambda path: VideoDecoder(path).get_all_frames(fps=25),
    "sample num_frames": lambda path: flashcodec.sample(path, num_frames=8),
    "sample fps": lambda path: flashcodec.sample(path, fps=25),
    "sample timestamps": lambda path: flashcodec.sample(path, timestamps=VideoDecoder(path).bitstream.pts_seconds),
    "clips": lambda path: flashcodec.samplers.clips_at_regular_timestamps(
        VideoDecoder(path), seconds_between_clip_starts=0.04
    ),
}


def whole_range(decoder: VideoDecoder) -> flashcodec.FrameBatch:
    begin, end = decoder.metadata.begin_stream_seconds, decoder.metadata.end_stream_seconds
    return decoder.get_frames_played_in_range(begin, end)


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """short(name) is the path of such a clip."""
    return lambda name: once(run_folder(tmp_path_factory) / name, encode)


def encode(path: Path) -> None:
    frames, encoder = CLIPS[path.name]
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25", "-frames:v", str(frames), *encoder, str(path))
    if path.name == "zero.mp4":
        data = bytearray(path.read_bytes())
        for box, place in DURATIONS.items():
            at = data.index(box) + place
            data[at : at + 4] = bytes(4)
        path.write_bytes(data)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CLIPS)
def test_no_frame_is_lost(short: Callable[[str], Path], name: str, way: str) -> None:
    batch = WAYS[way](short(name))
    assert np.asarray(batch.pts_seconds).ravel().tolist() == pytest.approx([n / 25 for n in range(CLIPS[name][0])])


@pytest.mark.parametrize("name", CLIPS)
def test_the_last_frame_is_shown_at_its_time_and_as_long_as_the_others(short: Callable[[str], Path], name: str) -> None:
    decoder = VideoDecoder(short(name))
    last = decoder.get_frame_at(-1)
    assert last.duration_seconds == pytest.approx(0.04)
    np.testing.assert_array_equal(decoder.get_frame_played_at(last.pts_seconds).data, last.data)
    assert decoder.metadata.end_stream_seconds == pytest.approx(last.pts_seconds + 0.04)
    assert decoder.metadata.average_fps == pytest.approx(25)


@pytest.mark.parametrize("name", ["one.flv", "zero.mp4"])
def test_the_command_line_shows_a_single_frame(short: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    for module in ("PIL", "rich", "typer"):
        pytest.importorskip(module, reason="the command line needs it")
    from flashcodec.cli.app import run

    for options in (["--frames", "3"], ["--fps", "1"], []):
        assert run(["plan", str(short(name)), *options]) == 0
        assert run(["sample", str(short(name)), "-o", str(tmp_path / "sheet.png"), *options]) == 0
    assert run(["probe", str(short(name))]) == 0
