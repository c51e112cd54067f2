"""NVDEC by its own library, over a stand-in that decodes in software: what is fed, copied out, kept and given up."""

import struct
from pathlib import Path
from typing import Any

import pytest
from conftest import FaultyFile
from flashcodec_clips import ClipMaker, without_packets
from gpu_runs import CUDA, expected, run, run_all

from flashcodec import Bitstream, _core

pytestmark = [
    pytest.mark.usefixtures("stand_in"),
    pytest.mark.skipif(not _core.has_gpu_kernels(), reason="FlashCodec was built without nvcc"),
]

CLIPS = [
    "h264_bframes.mp4",
    "h264_opengop.mp4",
    "h264_opengop.ts",
    "h264_pyramid.flv",
    "h264_pyramid.h264",  # without times
    "h264_edit_list.mp4",
    "h264_same_times.mp4",
    "h264_tagged.mp4",
    "rotated.mp4",
    "hevc_opengop.mp4",
    "hevc_pyramid.mkv",
    "hevc_closed_gop.ts",
    "hevc_10bit_layers.mp4",
    "vp8_hidden.webm",
]
LONG = "h264_long.mp4"  # 800 frames, a key frame every 50
SOME = list(range(0, 800, 27))
OF_ITS_FIRST_HALF = list(range(0, 400, 13))


def check(found: dict[str, Any], path: Path, frames: list[int]) -> None:
    """Each frame is what cores make of it, and nothing is left behind."""
    assert found["frames"] == expected(path, frames)
    assert (found["places"], found["live"]) == ([[CUDA, 0]], [0, 0])


@pytest.mark.parametrize("name", CLIPS)
def test_frames_are_those_that_cores_decode(clip: ClipMaker, name: str) -> None:
    count = Bitstream(clip(name)).num_frames
    requests = [list(range(count)), [count - 1, 3, 17, 3, 20]]
    for frames, found in zip(requests, run_all(clip(name), "cuda:0", requests, "gpu"), strict=True):
        check(found, clip(name), frames)
        assert (found["decoded_on"], found["fallbacks"]) == (["gpu"], 0)


@pytest.mark.parametrize(
    ("case", "on_gpu"),
    [
        ("h264 mp4 joined=0,35,0", True),  # parameter sets beside the packets
        ("hevc_open_gops mp4 begins_late=21", True),  # leading pictures that refer to what is not there
        ("hevc mp4 keys_all", True),
        ("h264 mkv pts_is_dts", True),
        ("h264 ts joined_restarting=0,20,0", True),  # the clock restarts at a start
        ("h264 ts joined_restarting=0,20,5", False),  # and where none is
    ],
)
def test_doubtful_containers_give_what_cores_give(faulty: FaultyFile, case: str, on_gpu: bool) -> None:
    path = faulty(case)
    frames = list(range(Bitstream(path).num_frames))
    requests = [frames, frames[-3:]]
    results = run_all(path, "cuda:0", requests, "gpu" if on_gpu else "fastest")
    assert "error" not in results[0], results
    for wanted, found in zip(requests, results, strict=True):
        check(found, path, wanted)
        assert (found["decoded_on"] == ["gpu"], found["fallbacks"]) == (on_gpu, 0)


def with_an_end(path: Path, milliseconds: int) -> bytes:
    """Return a file of one track whose edit list ends there."""
    data = bytearray(path.read_bytes())
    struct.pack_into(">I", data, data.index(b"elst") + 12, milliseconds)
    return bytes(data)


def test_a_picture_that_an_edit_list_hides_is_not_taken_for_one_before_it(clip: ClipMaker, tmp_path: Path) -> None:
    """The last picture, shown after all others, is referred to by them and decoded before them."""
    path = tmp_path / "ends_early.mp4"
    path.write_bytes(with_an_end(clip("h264_bframes.mp4"), 64 * 40))
    frames = [60, 61, 62, 63]
    assert Bitstream(path).num_frames == 64
    found = run(path, "cuda:0", frames, "gpu")
    check(found, path, frames)
    assert (found["decoded_on"], found["fallbacks"]) == (["gpu"], 0)


def test_cores_decode_where_timestamps_are_exchanged(clip: ClipMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of VP8 tell pictures apart: the parser gives one that is shown that of one that is not."""
    monkeypatch.setenv("FAKE_CUVID_FAULT", "stamps")
    name = "vp8_hidden.webm"
    frames = list(range(Bitstream(clip(name)).num_frames))
    error = run(clip(name), "cuda:0", frames, "gpu")["error"]
    assert "NVDEC exchanges timestamps" in error


def test_only_what_is_wanted_is_copied_out_and_only_what_it_needs_decoded(clip: ClipMaker) -> None:
    found = run(clip(LONG), "cuda:0", SOME, "gpu")
    check(found, clip(LONG), SOME)
    needed = sum(segment.packets_needed for segment in Bitstream(clip(LONG)).plan(SOME, engines=2).segments)
    assert found["calls"]["map"] == len(SOME)
    assert found["calls"]["decode"] == needed


def test_decoders_are_kept_for_the_next_video_and_told_of_a_smaller_size(clip: ClipMaker) -> None:
    large, small = clip("h264_bframes.mp4"), clip("h264_edit_list.mp4")
    found = run([large] * 8 + [small] * 16, "cuda:0", [7], "gpu")
    check(found, small, [7])
    assert found["calls"]["create"] <= 4  # at most one of each size an engine
    assert found["calls"]["reconfigure"] > 0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("create", "cuvidCreateDecoder"),
        ("map", "cuvidMapVideoFrame64"),
        ("map 20", "cuvidMapVideoFrame64"),
        ("decode 7", "cuvidDecodePicture"),
        ("damage 30", "NVDEC finds damage"),
        ("gap 30", "NVDEC does not conceal lost pictures"),
        ("fields 5", "interlaced"),
        ("silence", "NVDEC finds no picture"),
        ("twice 5", "NVDEC finds several pictures"),
    ],
)
def test_cores_take_over_where_nvdec_cannot_go_on(
    clip: ClipMaker, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    monkeypatch.setenv("FAKE_CUVID_FAULT", fault)
    found = run(clip(LONG), "cuda:0", OF_ITS_FIRST_HALF)
    check(found, clip(LONG), OF_ITS_FIRST_HALF)
    assert "NVDEC of cuda:0" in found["chosen"]
    assert found["fallbacks"] > 0
    assert reason in run(clip(LONG), "cuda:0", OF_ITS_FIRST_HALF, "gpu")["error"]


def test_ffmpeg_s_way_falls_back_where_it_sees_no_gpu(clip: ClipMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHCODEC_NVDEC", "ffmpeg")
    found = run(clip(LONG), "cuda:0", SOME)
    check(found, clip(LONG), SOME)
    assert found["fallbacks"] > 0
    assert "this FFmpeg cannot use cuda:0" in run(clip(LONG), "cuda:0", SOME, "gpu")["error"]


@pytest.mark.parametrize("name", ["vp9.webm", "h264_10bit_444.mp4", "mpeg4_packed.avi"])
def test_what_nvdec_does_not_decode_is_an_error_where_only_it_may(clip: ClipMaker, name: str) -> None:
    error = run(clip(name), "cuda:0", [0, 5], "gpu")["error"]
    assert error.startswith("UnsupportedError")
    assert "no GPU decodes it here" in error


def test_damaged_videos_give_what_cores_give(clip: ClipMaker, tmp_path: Path) -> None:
    path = tmp_path / "holed.mp4"
    path.write_bytes(without_packets(clip(LONG), range(420, 440)))
    on_cores = run(path, "cuda:0", SOME, "cpu", "--skip")["frames"]
    assert "damaged" in on_cores
    assert run(path, "cuda:0", SOME, "fastest", "--skip")["frames"] == on_cores
