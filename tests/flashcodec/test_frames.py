"""Every decoded frame equals FFmpeg's, bit for bit; as RGB it equals TorchCodec's."""

import random
from pathlib import Path

import numpy as np
import pytest
from flashcodec_clips import CLIPS, ClipMaker, frame_hashes, hashes

import flashcodec
from flashcodec import VideoDecoder

DATA = [
    "ax_518x488_gop7.mp4",
    "ax_bbb_3b_nonref.mp4",
    "ax_bbb_642x642_vp9.webm",
    "ax_bbb_first_pts_10s.mp4",
    "ax_bbb_h263.3gp",
    "ax_bear_vp9_161x121.webm",
    "ax_dolbyvision_iphone.MOV",
    "ax_edit_list_preroll_only.mp4",
    "ax_fragmented_bogus_duration.mp4",
    "ax_h264.ts",
    "ax_h264_no_pts_large_length.avi",
    "ax_h265.ts",
    "ax_iibbibb_editlist_1fps.mp4",
    "ax_mvhevc_stereo.mov",
    "ax_sample_mpeg4.avi",
    "ax_sef_slow_motion.mp4",
    "dc_flipping_a_pancake.mkv",
    "dc_unordered.mov",
    "derived/interlaced_bff_mpeg2_576i25.mpg",
    "derived/intra_refresh_h264_bikes.mp4",
    "derived/live_no_cues_no_duration.mkv",
    "derived/mjpeg_cup_2s.mov",
    "derived/opengop_h264_bikes.ts",
    "derived/opengop_hevc_cra_rasl_car.mp4",
    "derived/prores_bikes_3s.mov",
    "derived/pts_wrap_33bit_bikes.ts",
    "derived/resolution_change_and_pts_reset.ts",
    "derived/start_3600s_bikes.mkv",
    "derived/theora_carphone.ogv",
    "derived/vfr_mpdecimate_bottle.mp4",
    "derived/vp8_altref_pancake.webm",
    "in_asl_book_webcam.mkv",
    "mp_1x1_1fps.mp4",
    "sk_bikes.mp4",
    "tc_av1_10bit.mp4",
    "tc_bt601_full_range.mp4",
    "tc_h265_video.mp4",
    "tc_mpeg1_ps.mpg",
    "tc_nasa_13013.mp4",
    "tc_odd_321x241_h264_444_10bit.mp4",
]

# TorchCodec seeks to a wrong frame in these (their timestamps restart, are missing, or their key frames are no
# entry points), which the comparison with FFmpeg shows; what it makes of RGB is compared on the others.
TORCHCODEC_SEEKS_WRONG = {
    "ax_h264.ts",
    "ax_h264_no_pts_large_length.avi",
    "ax_h265.ts",
    "ax_iibbibb_editlist_1fps.mp4",
    "derived/interlaced_bff_mpeg2_576i25.mpg",
    "derived/intra_refresh_h264_bikes.mp4",
    "derived/opengop_h264_bikes.ts",
    "derived/pts_wrap_33bit_bikes.ts",
    "derived/resolution_change_and_pts_reset.ts",
    "tc_mpeg1_ps.mpg",
    "h264_opengop.ts",
    "h264_intra_refresh.mp4",
    "mpeg2.mpg",
}


def check_against_ffmpeg(path: Path) -> None:
    stream = flashcodec.analyse_bitstream(path)
    reference = frame_hashes(path, stream.metadata.stream_index)
    assert stream.num_frames == len(reference)
    count = stream.num_frames
    every_7th = list(range(0, count, 7))
    some = sorted(random.Random(0).sample(range(count), min(12, count)))
    decoder = VideoDecoder(stream)
    for indices in (every_7th, some, [count - 1]):
        assert hashes(decoder.get_yuv_frames_at(indices)) == [reference[i] for i in indices]


def check_against_torchcodec(path: Path) -> None:
    torchcodec = pytest.importorskip("torchcodec.decoders", reason="TorchCodec is the reference")
    theirs = torchcodec.VideoDecoder(path)
    ours = VideoDecoder(path)
    assert len(ours) == len(theirs)
    indices = sorted(random.Random(1).sample(range(len(ours)), min(5, len(ours))))
    batch, reference = ours.get_frames_at(indices), theirs.get_frames_at(indices)
    difference = batch.data.astype(np.int16) - reference.data.numpy().astype(np.int16)
    assert np.abs(difference).max() <= 1
    np.testing.assert_allclose(batch.pts_seconds, reference.pts_seconds.numpy(), atol=1e-9)
    assert (ours.metadata.height, ours.metadata.width) == (theirs.metadata.height, theirs.metadata.width)
    assert ours.metadata.rotation == theirs.metadata.rotation


@pytest.mark.parametrize("name", CLIPS)
def test_planes_of_generated_clips_equal_ffmpegs(clip: ClipMaker, name: str) -> None:
    check_against_ffmpeg(clip(name))


@pytest.mark.parametrize("name", DATA)
def test_planes_of_real_videos_equal_ffmpegs(data_folder: Path, name: str) -> None:
    check_against_ffmpeg(data_folder / "videos" / name)


@pytest.mark.parametrize("name", sorted(CLIPS.keys() - TORCHCODEC_SEEKS_WRONG))
def test_rgb_of_generated_clips_equals_torchcodecs(clip: ClipMaker, name: str) -> None:
    check_against_torchcodec(clip(name))


ROTATED = ["dc_video_90.mov", "dc_video_180.mov", "dc_video_270.mov"]


@pytest.mark.parametrize("name", sorted({*DATA, *ROTATED} - TORCHCODEC_SEEKS_WRONG))
def test_rgb_of_real_videos_equals_torchcodecs(data_folder: Path, name: str) -> None:
    check_against_torchcodec(data_folder / "videos" / name)


def test_a_picture_of_another_size_is_resized_to_the_streams(data_folder: Path) -> None:
    decoder = VideoDecoder(data_folder / "videos" / "derived" / "resolution_change_and_pts_reset.ts")
    frames = decoder.get_frames_at([0, 149])
    assert frames.data.shape == (2, 3, 136, 320)
    assert frames.data[1].std() > 10
