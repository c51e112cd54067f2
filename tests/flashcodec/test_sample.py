"""flashcodec.sample: frames by one call, by rules that are written down."""

from typing import Any

import numpy as np
import pytest
from flashcodec.sampling import evenly_spaced
from flashcodec_clips import ClipMaker
from hypothesis import given
from hypothesis import strategies as st

import flashcodec
from flashcodec import VideoDecoder, sample

torchcodec = pytest.importorskip("torchcodec.decoders", reason="TorchCodec is the reference")


def numbers(batch: flashcodec.FrameBatch) -> list[int]:
    assert batch.indices is not None
    return [int(index) for index in batch.indices]


@given(available=st.integers(1, 10_000), wanted=st.integers(1, 300))
def test_a_number_of_frames_is_evenly_spaced(available: int, wanted: int) -> None:
    frames = evenly_spaced(available, wanted)
    assert len(frames) == min(available, wanted)
    assert frames[0] == 0
    assert wanted == 1 or frames[-1] == available - 1
    steps = np.diff(frames)
    assert (steps >= 1).all()
    assert steps.size == 0 or steps.max() - steps.min() <= 1


def test_a_number_of_frames_is_as_in_transformers() -> None:
    """Qwen3-VL's processor. It lets some frames come twice where there are too few."""
    pytest.importorskip("reference")  # makes torchvision importable
    processing = pytest.importorskip("transformers.models.qwen3_vl.video_processing_qwen3_vl")
    utils = pytest.importorskip("transformers.video_utils")
    processor = object.__new__(processing.Qwen3VLVideoProcessor)
    for available, wanted in [(150, 8), (150, 64), (300, 7), (901, 32)]:
        metadata = utils.VideoMetadata(total_num_frames=available, fps=25.0)
        expected = processor.sample_frames(metadata, num_frames=wanted)
        assert evenly_spaced(available, wanted).tolist() == list(expected)


@pytest.mark.parametrize("name", ["h264_bframes.mp4", "h264_vfr.mp4", "h264_edit_list.mp4"])
def test_frames_are_torchcodecs(clip: ClipMaker, name: str) -> None:
    path = clip(name)
    theirs = torchcodec.VideoDecoder(path, dimension_order="NHWC")
    begin = theirs.metadata.begin_stream_seconds
    for arguments, expected in [
        ({"num_frames": 5}, theirs.get_frames_at(np.linspace(0, len(theirs) - 1, 5).round().astype(int).tolist())),
        ({"fps": 2}, theirs.get_all_frames(fps=2)),
        ({"timestamps": [begin + 1, begin]}, theirs.get_frames_played_at([begin + 1, begin])),
        ({"indices": [4, -1, 4]}, theirs.get_frames_at([4, -1, 4])),
    ]:
        batch = sample(path, **arguments)  # type: ignore[arg-type]
        np.testing.assert_array_equal(batch.data, expected.data)
        if "fps" not in arguments:
            np.testing.assert_array_equal(batch.pts_seconds, expected.pts_seconds)
        np.testing.assert_array_equal(batch.pts_seconds, VideoDecoder(path).bitstream.pts_seconds[numbers(batch)])


def test_too_few_frames_come_once_each(clip: ClipMaker) -> None:
    path = clip("odd_size.mp4")  # one second of 25 frames
    assert numbers(sample(path, num_frames=1)) == [0]
    assert numbers(sample(path, num_frames=25)) == list(range(25))
    assert numbers(sample(path, num_frames=1000)) == list(range(25))
    assert numbers(sample(path, fps=1000)) == list(range(25))
    assert numbers(sample(path, fps=0.001)) == [0]


def test_sizes_and_orders(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    assert sample(path, num_frames=2).data.shape == (2, 180, 320, 3)
    assert sample(path, num_frames=2, size=90).data.shape == (2, 90, 160, 3)
    assert sample(path, num_frames=2, size=(48, 64), order="NCHW").data.shape == (2, 3, 48, 64)
    np.testing.assert_array_equal(
        sample(path, indices=[7], size=(48, 64), order="NCHW").data, VideoDecoder(path, size=(48, 64))[7:8]
    )


def test_options_are_the_decoders(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    data = clip("h264_faststart.mp4").read_bytes()
    assert numbers(sample(path, indices=[1, 29], snap="keyframe", num_threads=1)) == [0, 30]
    assert len(sample(data[: len(data) // 2], num_frames=150, on_error="skip")) < 120
    seen: list[tuple[int, int]] = []
    sample(path, num_frames=4, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4, 4)
    with pytest.raises(TypeError, match="unknown"):
        sample(path, num_frames=1, unknown=1)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ValueError, "exactly one"),
    ({"num_frames": 2, "fps": 1}, ValueError, "exactly one"),
    ({"num_frames": 0}, ValueError, "num_frames"),
    ({"num_frames": 1.5}, TypeError, "integer"),
    ({"fps": 0}, ValueError, "fps"),
    ({"timestamps": [99.0]}, IndexError, "99"),
    ({"timestamps": ["a"]}, ValueError, "times"),
    ({"indices": [150]}, IndexError, "150"),
    ({"indices": [0.5]}, TypeError, "integers"),
    ({"num_frames": 1, "size": -1}, ValueError, "size"),
    ({"num_frames": 1, "order": "HWC"}, ValueError, "dimension order"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD, ids=str)
def test_bad_arguments_say_what_is_wrong(
    clip: ClipMaker, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        sample(clip("h264_bframes.mp4"), **arguments)
