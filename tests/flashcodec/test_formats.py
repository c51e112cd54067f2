"""Every codec and container: each frame equals FFmpeg's, and no packet is decoded that no wanted frame needs."""

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from flashcodec_clips import FORMATS, HIDDEN, ClipMaker, frame_hashes, hashes, run_ffmpeg
from h264_fields import FRAMES_PER_GOP, paff_stream

import flashcodec
from flashcodec import LimitError, Limits, UnsupportedError, VideoDecoder

# Clips with frames that no other needs, and those whose every frame another may need.
SKIPPED = {
    *("h264_pyramid.mp4", "h264_pyramid.flv", "h264_mbaff.mp4", "h264_mbaff.ts", "h264_422_10bit.ts"),
    *("hevc_pyramid.mkv", "hevc_closed_gop.ts", "hevc_10bit_layers.mp4", "hevc_fields.ts", "without_cues.mkv"),
    *("av1_svt.mp4", "av1_svt.mkv", "av1_svt.ivf", "av1_10bit.webm", "vp9_layers.webm", "vp8_layers.webm"),
    *("mpeg1.mkv", "mpeg2.mp4", "mpeg2.ts", "mpeg2.m2v", "mpeg2.vob", "mpeg2_interlaced.ts"),
    *("mpeg4.mp4", "mpeg4_bframes.avi", "mpeg4.mkv", "starts_late.ts"),
}
KEPT = {
    # State goes on from frame to frame; interlaced B-VOPs depend on the first one; packets hold more than a picture.
    *("vp9_layers_that_carry_over.webm", "vp9_superframes.webm", "vp9.mp4"),
    *("vp9_10bit.webm", "vp9_422.mkv", "vp9_full_range.mp4"),
    *("mpeg4_packed.avi", "h263.3gp", "mjpeg.avi", "prores.mov", "theora.ogv", "flv1.flv", "animated.gif"),
}


def check_frames(path: Path) -> None:
    stream = flashcodec.analyse_bitstream(path)
    reference = frame_hashes(path, stream.metadata.stream_index)
    count = stream.num_frames
    assert count == len(reference)
    rng = random.Random(0)
    requests = [list(range(0, count, 7)), sorted(rng.sample(range(count), count // 4)), list(range(count))]
    requests += [[i] for i in rng.sample(range(count), min(12, count))]
    decoder = VideoDecoder(stream)
    for indices in requests:
        assert hashes(decoder.get_yuv_frames_at(indices)) == [reference[i] for i in indices], indices[:3]


@pytest.mark.parametrize("name", FORMATS)
def test_frames_equal_ffmpegs(clip: ClipMaker, name: str) -> None:
    check_frames(clip(name))


@pytest.mark.parametrize("name", HIDDEN)
def test_a_packet_whose_frame_is_not_shown_is_none(clip: ClipMaker, name: str) -> None:
    stream = flashcodec.analyse_bitstream(clip(name))
    assert stream.core.num_packets > stream.num_frames
    check_frames(clip(name))


@pytest.mark.parametrize("name", sorted(SKIPPED))
def test_frames_that_no_other_needs_are_skipped(clip: ClipMaker, name: str) -> None:
    stream = flashcodec.analyse_bitstream(clip(name))
    last = min(23, stream.num_frames - 1)
    plan = stream.plan([last])
    assert plan.packets_skipped >= 3
    assert plan.packets_needed + plan.packets_skipped <= last + 3


@pytest.mark.parametrize("name", sorted(KEPT))
def test_frames_that_others_may_need_are_kept(clip: ClipMaker, name: str) -> None:
    stream = flashcodec.analyse_bitstream(clip(name))
    assert stream.plan(range(0, stream.num_frames, 7)).packets_skipped == 0


@pytest.mark.parametrize("name", ["mpeg4_bframes.avi", "mpeg2.m2v", "mpeg2.vob"])
def test_without_timestamps_decoding_starts_at_the_key_frame_before(clip: ClipMaker, name: str) -> None:
    stream = flashcodec.analyse_bitstream(clip(name))
    (segment,) = stream.plan([60]).segments
    assert segment.runs[0][0] > 24


@pytest.mark.parametrize("container", ["ts", "mkv", "mp4", "h264"])
def test_two_fields_are_one_frame(tmp_path: Path, container: str) -> None:
    """The demuxer gives each field as a packet, also where a remuxer has made a sample of each."""
    bare = tmp_path / "fields.h264"
    bare.write_bytes(paff_stream(gops=5))
    path = tmp_path / f"video.{container}"
    run_ffmpeg("-r", "25", "-i", str(bare), "-c", "copy", str(path))
    assert flashcodec.analyse_bitstream(path).num_frames == 5 * FRAMES_PER_GOP
    check_frames(path)
    if container != "h264":  # has no timestamps
        assert flashcodec.analyse_bitstream(path).plan([3]).packets_skipped == 1


def test_a_picture_size_that_changes(clip: ClipMaker, tmp_path: Path) -> None:
    other = tmp_path / "other.ts"
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=s=96x64:r=25:d=1", "-c:v", "libx264", "-pix_fmt", "yuv420p", str(other))
    path = tmp_path / "changing.ts"
    path.write_bytes(clip("h264_mbaff.ts").read_bytes() + other.read_bytes())
    check_frames(path)
    assert VideoDecoder(path).get_frames_at([0, 90]).data.shape == (2, 3, 128, 192)


# Display matrices: the eight ways to show a picture.
UPRIGHT = (1, 0, 0, 1)
MATRICES = [
    UPRIGHT,
    (0, 1, -1, 0),
    (-1, 0, 0, -1),
    (0, -1, 1, 0),
    (-1, 0, 0, 1),
    (1, 0, 0, -1),
    (0, 1, 1, 0),
    (0, -1, -1, 0),
]


def matrix_bytes(matrix: tuple[int, int, int, int]) -> bytes:
    a, b, c, d = (value << 16 for value in matrix)
    return struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)


@pytest.mark.parametrize("matrix", MATRICES)
def test_turns_and_mirrors_are_ffmpegs(tmp_path: Path, matrix: tuple[int, int, int, int]) -> None:
    plain, path = tmp_path / "plain.mp4", tmp_path / "turned.mp4"
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=s=48x32:r=5:d=1", "-pix_fmt", "yuv444p", "-c:v", "libx264", str(plain))
    data = plain.read_bytes()
    at = data.index(matrix_bytes(UPRIGHT), data.index(b"tkhd"))
    path.write_bytes(data[:at] + matrix_bytes(matrix) + data[at + 36 :])
    frame = VideoDecoder(path, dimension_order="NHWC")[0]
    exact = ["-sws_flags", "accurate_rnd+full_chroma_int+bitexact", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    reference = np.frombuffer(run_ffmpeg("-i", str(path), "-frames:v", "1", *exact, "-"), np.uint8)
    assert frame.shape == ((32, 48, 3) if matrix[0] else (48, 32, 3))
    difference = frame.ravel().astype(np.int16) - reference
    assert np.abs(difference).max() <= 1


def test_a_real_video_that_is_turned_and_mirrored(data_folder: Path) -> None:
    path = data_folder / "videos" / "ax_rotate_and_reflect.mp4"
    frame = VideoDecoder(path, dimension_order="NHWC")[0]
    exact = ["-sws_flags", "accurate_rnd+full_chroma_int+bitexact+bicubic", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    reference = np.frombuffer(run_ffmpeg("-i", str(path), "-frames:v", "1", *exact, "-"), np.uint8)
    difference = frame.astype(np.int16) - reference.reshape(frame.shape)
    assert np.abs(difference).mean() < 2


@pytest.fixture(scope="session")
def cover(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cover") / "cover.png"
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=s=1280x720", "-frames:v", "1", str(path))
    return path


@pytest.mark.parametrize("container", ["mp4", "mkv"])
def test_cover_art_is_not_the_video(clip: ClipMaker, cover: Path, tmp_path: Path, container: str) -> None:
    path = tmp_path / f"video.{container}"
    art = ["-i", str(cover), "-map", "1", "-map", "0"]
    if container == "mkv":
        art = ["-attach", str(cover), "-metadata:s:t", "mimetype=image/png"]
    run_ffmpeg("-i", str(clip("h264_pyramid.mp4")), *art, "-c", "copy", "-disposition:v:0", "attached_pic", str(path))
    stream = flashcodec.analyse_bitstream(path)
    assert (stream.width, stream.height, stream.num_frames) == (192, 128, 75)


def test_sound_with_cover_art_is_no_video(cover: Path, tmp_path: Path) -> None:
    path = tmp_path / "song.m4a"
    sound = ["-f", "lavfi", "-i", "sine=d=1", "-i", str(cover), "-map", "0", "-map", "1"]
    run_ffmpeg(*sound, "-c:v", "copy", "-disposition:v:0", "attached_pic", str(path))
    with pytest.raises(UnsupportedError, match=r"no video stream, only an attached picture \(stream 1\)"):
        flashcodec.analyse_bitstream(path)
    run_ffmpeg("-f", "lavfi", "-i", "sine=d=1", "-y", str(path))
    with pytest.raises(UnsupportedError, match="there is no video stream"):
        flashcodec.analyse_bitstream(path)


def test_of_several_videos_one_can_be_chosen(clip: ClipMaker, tmp_path: Path) -> None:
    path = tmp_path / "two.mkv"
    inputs = ["-i", str(clip("mjpeg.avi")), "-i", str(clip("mpeg2.mp4"))]
    run_ffmpeg(*inputs, "-map", "0", "-map", "1", "-c", "copy", str(path))
    for index, codec in enumerate(("mjpeg", "mpeg2video")):
        stream = flashcodec.analyse_bitstream(path, stream_index=index)
        assert stream.metadata.codec == codec
        reference = frame_hashes(path, index)
        assert hashes(VideoDecoder(stream).get_yuv_frames_at([0, 40, 74])) == [reference[i] for i in (0, 40, 74)]


def test_a_wrong_duration_does_no_harm(clip: ClipMaker) -> None:
    data = bytearray(clip("h264_pyramid.mp4").read_bytes())
    for box in (b"mvhd", b"tkhd", b"mdhd"):
        at = data.index(box) + (24 if box == b"tkhd" else 20)
        data[at : at + 4] = (2**31 - 1).to_bytes(4, "big")
    stream = flashcodec.analyse_bitstream(bytes(data))
    assert stream.num_frames == 75
    assert stream.metadata.duration_seconds == pytest.approx(3)


def test_an_animated_webp_is_refused_clearly(tmp_path: Path) -> None:
    path = tmp_path / "animated.webp"
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=10:d=1", "-c:v", "libwebp_anim", str(path))
    with pytest.raises(UnsupportedError, match="animated WebP"):
        flashcodec.analyse_bitstream(path)


def test_a_source_may_be_too_large(clip: ClipMaker) -> None:
    path = clip("h264_pyramid.mp4")
    size = path.stat().st_size
    assert flashcodec.analyse_bitstream(path, limits=Limits(max_source_bytes=size)).num_frames == 75
    with pytest.raises(LimitError, match=f"has {size} bytes, over the limit of {size - 1}"):
        flashcodec.analyse_bitstream(path, limits=Limits(max_source_bytes=size - 1))


def test_an_edit_list_cannot_claim_billions_of_frames(clip: ClipMaker) -> None:
    data = bytearray(clip("h264_pyramid.mp4").read_bytes())
    at = data.index(b"elst") + 8
    data[at : at + 4] = (2**30).to_bytes(4, "big")
    with pytest.raises(LimitError, match="its tables claim"):
        flashcodec.analyse_bitstream(bytes(data))


def test_composition_offsets_cannot_go_on_for_billions_of_frames(clip: ClipMaker) -> None:
    data = bytearray(clip("h264_pyramid.mp4").read_bytes())
    at = data.index(b"ctts") + 12
    data[at : at + 4] = (2**28).to_bytes(4, "big")
    with pytest.raises(LimitError, match="its tables claim 268435"):
        flashcodec.analyse_bitstream(bytes(data))


@pytest.mark.parametrize("version", [b"", bytes(4)])
def test_a_table_of_metadata_keys_cannot_claim_gigabytes(clip: ClipMaker, version: bytes) -> None:
    handler = box(b"hdlr", bytes(8) + b"mdta" + bytes(13))
    keys = box(b"keys", bytes(4) + (2**27).to_bytes(4, "big"))
    data = clip("h264_pyramid.mp4").read_bytes() + box(b"moov", box(b"meta", version + handler + keys))
    with pytest.raises(LimitError, match="its tables claim 134217"):
        flashcodec.analyse_bitstream(data)


def box(name: bytes, body: bytes) -> bytes:
    return (8 + len(body)).to_bytes(4, "big") + name + body


def test_a_table_of_equal_samples_cannot_claim_billions_of_frames(clip: ClipMaker) -> None:
    data = bytearray(clip("h264_pyramid.mp4").read_bytes())
    at = data.index(b"stsz") + 8
    data[at : at + 8] = (1).to_bytes(4, "big") + (2**31).to_bytes(4, "big")
    with pytest.raises(LimitError, match="its tables claim 2147483648 entries"):
        flashcodec.analyse_bitstream(bytes(data))
