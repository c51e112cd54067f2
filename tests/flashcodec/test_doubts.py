"""What of a container is not believed, and how that is said."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import FaultyFile
from faulty_files.case import FORMATS as CONTAINERS
from faulty_files.faults import JOINTS
from flashcodec_clips import ClipMaker

import flashcodec
from flashcodec import Doubt, VideoDecoder


@pytest.mark.parametrize("name", ["hevc_opengop.mp4", "vp9.webm", "mpeg2.ts", "h264_intra_refresh.mp4", "av1_svt.mkv"])
def test_ordinary_files_are_believed(clip: ClipMaker, name: str) -> None:
    stream = flashcodec.analyse_bitstream(clip(name))
    assert stream.doubts == stream.plan([0, 3]).doubts == ()


@pytest.mark.parametrize(
    ("case", "doubt"),
    [
        ("hevc mp4 keys_all", Doubt("key flags", "hevc: packet 0, 12, 24 only are starts")),
        ("mpeg4 mp4 keys_all", Doubt("key flags", "mpeg4: packet 0, 10, 22, 34 only are starts")),
        ("h261 mkv keys_all", Doubt("key flags", "h261: its packets do not tell where decoding may start")),
    ],
)
def test_key_flags_are_those_of_the_packets(faulty: FaultyFile, case: str, doubt: Doubt) -> None:
    stream = flashcodec.analyse_bitstream(faulty(case))
    assert stream.plan([0]).doubts == (doubt,)
    starts = [gop.first_packet for gop in stream.gops]
    assert starts == {"hevc": [0, 12, 24], "mpeg4": [0, 10, 22, 34], "h261": [0]}[case.split()[0]]


@pytest.mark.parametrize("case", ["h264 mp4 pts_is_dts", "hevc fragments pts_is_dts", "mpeg4 mp4 pts_is_dts"])
def test_the_order_of_pictures_goes_before_that_of_times(faulty: FaultyFile, case: str) -> None:
    """Random access is kept: a frame in the middle is not decoded from the start."""
    path = faulty(case)
    stream = flashcodec.analyse_bitstream(path)
    assert [doubt.claim for doubt in stream.doubts] == ["times"]
    np.testing.assert_array_less(stream.pts_seconds[:-1], stream.pts_seconds[1:])
    if len(stream.gops) > 1:
        assert stream.plan([stream.num_frames - 1]).packets_unread > stream.num_frames // 3


def test_frames_that_do_not_come_out_are_none(faulty: FaultyFile) -> None:
    stream = flashcodec.analyse_bitstream(faulty("h264_open_gops ts begins_late=3"))
    assert [doubt.claim for doubt in stream.doubts] == ["frames"]
    assert stream.num_frames == len(VideoDecoder(stream).get_frames_at(range(stream.num_frames)).data)


def test_pictures_of_another_format_from_the_middle_on(faulty: FaultyFile) -> None:
    """Parameter sets that come beside the packets hold for a frame that is asked for alone, in both parts."""
    first, second = faulty("h264 mp4"), faulty("h264_deep mp4")
    joined = first.with_name("joined.mp4")
    join(first, second, joined)
    parts = [VideoDecoder(path) for path in (first, second)]
    counts = [len(part) for part in parts]
    decoder = VideoDecoder(joined)
    assert len(decoder) == sum(counts)
    for frame in (counts[0] + 20, 0, counts[0], counts[0] - 1):
        part = 0 if frame < counts[0] else 1
        expected = flashcodec.yuv_frames_at([first, second][part], [frame - part * counts[0]])
        np.testing.assert_array_equal(flashcodec.yuv_frames_at(joined, [frame])[0], expected[0])


def join(first: Path, second: Path, out: Path) -> None:
    """Write one track with two sample descriptions."""
    form = CONTAINERS["mp4"]
    parts = [form.read(path.read_bytes()) for path in (first, second)]
    out.write_bytes(form.write(JOINTS["joined"].apply(*parts, len(parts[0].packets) - 1, 0)))


def test_the_command_line_says_what_is_not_trusted(faulty: FaultyFile, clip: ClipMaker) -> None:
    def plan(path: Path) -> str:
        command = [sys.executable, "-m", "flashcodec.cli", "plan", str(path), "--indices", "1"]
        return " ".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())

    assert "trusts key flags no (hevc: packet 0, 12, 24 only are starts)" in plan(faulty("hevc mp4 keys_all"))
    assert "trusts what the container says" in plan(clip("vp9.webm"))
