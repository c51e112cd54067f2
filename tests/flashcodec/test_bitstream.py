"""Analysis: what it says of frames, times and GOPs, and how little it reads."""

import io
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from flashcodec_clips import CLIPS, HIDDEN, ClipMaker

import flashcodec
from flashcodec import Bitstream, VideoDecoder


class CountingFile(io.BytesIO):
    """Counts the bytes that are read."""

    bytes_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.bytes_read += len(data)
        return data


def probe_frames(path: Path) -> list[dict[str, str]]:
    command = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_frames", "-of", "json"]
    shown = subprocess.run([*command, str(path)], check=True, capture_output=True).stdout
    frames: list[dict[str, str]] = json.loads(shown)["frames"]
    return frames


WITHOUT_TIMES = {"mpeg4.avi", "mpeg2.mpg"}  # FFmpeg gives no timestamp for each of their frames


@pytest.mark.parametrize("name", sorted((CLIPS.keys() | HIDDEN.keys()) - WITHOUT_TIMES))
def test_times_and_key_frames_are_ffprobes(clip: ClipMaker, name: str) -> None:
    stream = flashcodec.analyse_bitstream(clip(name))
    frames = probe_frames(clip(name))
    np.testing.assert_allclose(stream.pts_seconds, [float(f["pts_time"]) for f in frames], atol=1e-5)
    assert np.all(np.diff(stream.pts_seconds) > 0)
    if name != "h264_intra_refresh.mp4":  # FFmpeg's decoder takes only the IDR picture for a key frame there
        assert stream.key_frames.tolist() == [i for i, f in enumerate(frames) if f["key_frame"] == 1]


@pytest.mark.parametrize("name", CLIPS)
def test_gops_are_half_open_ranges_of_all_packets(clip: ClipMaker, name: str) -> None:
    stream = flashcodec.analyse_bitstream(clip(name))
    assert stream.gops[0].first_packet == 0
    for gop, following in zip(stream.gops, stream.gops[1:], strict=False):
        assert gop.first_packet < gop.last_packet == following.first_packet
    assert max(gop.last_frame for gop in stream.gops) == stream.num_frames


def test_media_data_of_mp4_is_not_read(tmp_path: Path) -> None:
    """Twice the pictures of a long clip must not mean more bytes than their table entries."""
    lengths = {}
    for seconds in (20, 40):
        path = tmp_path / f"{seconds}.mp4"
        source = ["-f", "lavfi", "-i", f"testsrc2=s=320x240:r=25:d={seconds}"]
        encoder = ["-c:v", "mpeg4", "-q:v", "2"]
        subprocess.run(["ffmpeg", "-v", "error", *source, *encoder, str(path)], check=True)
        file = CountingFile(path.read_bytes())
        assert Bitstream(file).num_frames == seconds * 25
        lengths[seconds] = (file.bytes_read, path.stat().st_size)
    assert lengths[40][1] - lengths[20][1] > 1_000_000
    assert lengths[40][0] - lengths[20][0] < 50_000


def test_path_bytes_and_file_give_the_same(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    data = path.read_bytes()
    reference = VideoDecoder(path)[40]
    for source in (str(path), data, bytearray(data), memoryview(data), io.BytesIO(data)):
        np.testing.assert_array_equal(VideoDecoder(source)[40], reference)
    with path.open("rb") as file:
        np.testing.assert_array_equal(VideoDecoder(file)[40], reference)


def test_metadata_names_are_torchcodecs(clip: ClipMaker) -> None:
    torchcodec = pytest.importorskip("torchcodec.decoders", reason="TorchCodec is the reference")
    for name in ("h264_bframes.mp4", "rotated.mp4", "vp9.webm"):
        theirs = vars(torchcodec.VideoDecoder(clip(name)).metadata)
        ours = vars(VideoDecoder(clip(name)).metadata)
        assert ours.keys() == theirs.keys()
        differing = {key for key in ours if ours[key] != pytest.approx(theirs[key])} - {
            "pixel_aspect_ratio",
            "bit_rate",
        }
        assert differing == set()


def test_stream_index_chooses_a_stream(data_folder: Path) -> None:
    path = data_folder / "videos" / "tc_nasa_13013.mp4"
    assert flashcodec.analyse_bitstream(path).metadata.stream_index == 3
    small = flashcodec.analyse_bitstream(path, stream_index=0)
    assert (small.width, small.height) == (320, 180)
    with pytest.raises(ValueError, match="stream 1 is audio, not a video stream"):
        flashcodec.analyse_bitstream(path, stream_index=1)
    with pytest.raises(ValueError, match="stream index 99 is not a valid stream"):
        flashcodec.analyse_bitstream(path, stream_index=99)
    with pytest.raises(ValueError, match="negative"):
        flashcodec.analyse_bitstream(path, stream_index=-1)


@pytest.mark.parametrize("name", ["h264_tagged.mp4", "h264_bframes.mp4", "h264_10bit_444.mp4", "hevc_opengop.mp4"])
def test_what_headers_say_of_pictures_is_torchcodecs(clip: ClipMaker, name: str) -> None:
    decoders = pytest.importorskip("torchcodec.decoders", reason="TorchCodec is the reference")
    ours = flashcodec.analyse_bitstream(clip(name)).metadata
    theirs = decoders.VideoDecoder(clip(name)).metadata
    fields = ["pixel_format", "pixel_aspect_ratio", "color_primaries", "color_space", "color_transfer_characteristic"]
    fields += ["width", "height", "bit_rate", "codec", "num_frames_from_header", "duration_seconds_from_header"]
    for field in fields:
        assert getattr(ours, field) == getattr(theirs, field), field


@pytest.mark.parametrize("name", ["vp9.webm", "vp9_10bit.webm", "vp9_422.mkv", "vp9_full_range.mp4", "vp9_layers.webm"])
def test_what_vp9_headers_say_of_pictures_is_ffprobes(clip: ClipMaker, name: str) -> None:
    fields = ["pix_fmt", "color_space", "color_primaries", "width", "height"]
    command = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-of", "json"]
    command += ["-show_entries", f"stream={','.join(fields)}", str(clip(name))]
    (stream,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["streams"]
    ours = flashcodec.analyse_bitstream(clip(name)).metadata
    found = (ours.pixel_format, ours.color_space, ours.color_primaries, ours.width, ours.height)
    assert found == tuple(stream.get(field) for field in fields)
