"""VideoDecoder behaves as TorchCodec's."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flashcodec_clips import ClipMaker, frame_hashes, hashes

from flashcodec import DecodeError, VideoDecoder, yuv_frames_at

torchcodec = pytest.importorskip("torchcodec.decoders", reason="TorchCodec is the reference")
torch = pytest.importorskip("torch")

NAMES = ["h264_bframes.mp4", "h264_vfr.mp4", "h264_edit_list.mp4", "vp9.webm"]


@pytest.fixture(params=NAMES)
def pair(request: pytest.FixtureRequest, clip: ClipMaker) -> tuple[VideoDecoder, Any]:
    path = clip(request.param)
    return VideoDecoder(path), torchcodec.VideoDecoder(path)


def check_same(ours: Any, theirs: Any) -> None:
    if hasattr(theirs, "pts_seconds"):
        np.testing.assert_allclose(ours.pts_seconds, theirs.pts_seconds)
        np.testing.assert_allclose(ours.duration_seconds, theirs.duration_seconds)
        ours, theirs = ours.data, theirs.data
    assert ours.shape == tuple(theirs.shape)
    np.testing.assert_array_equal(ours, theirs.numpy())


CALLS: dict[str, Callable[[Any], Any]] = {
    "first": lambda d: d[0],
    "last": lambda d: d[-1],
    "numpy integer": lambda d: d[np.int64(5)],
    "slice": lambda d: d[3:20:4],
    "negative slice": lambda d: d[-5:],
    "empty slice": lambda d: d[5:5],
    "slice beyond the end": lambda d: d[d.metadata.num_frames - 2 : 10_000],
    "frame": lambda d: d.get_frame_at(9),
    "negative frame": lambda d: d.get_frame_at(-3),
    "frames": lambda d: d.get_frames_at([2, 30, 11]),
    "repeated frames": lambda d: d.get_frames_at([7, 7, 3, 7, -1]),
    "range": lambda d: d.get_frames_in_range(4, 30, 5),
    "range with negative ends": lambda d: d.get_frames_in_range(-4, 10_000),
    "played at": lambda d: d.get_frame_played_at(0.31),
    "played at the very start": lambda d: d.get_frame_played_at(d.metadata.begin_stream_seconds),
    "several played at": lambda d: d.get_frames_played_at([1.0, 0.2, 1.039]),
    "played in range": lambda d: d.get_frames_played_in_range(0.1, 0.5),
    "played in an empty range": lambda d: d.get_frames_played_in_range(0.1, 0.1),
    "played between two frames": lambda d: d.get_frames_played_in_range(0.41, 0.415),
    "played to the end": lambda d: d.get_frames_played_in_range(1.5, d.metadata.end_stream_seconds),
    "resampled down": lambda d: d.get_frames_played_in_range(0.1, 1.5, fps=7),
    "resampled up": lambda d: d.get_frames_played_in_range(0.1, 0.4, fps=60),
}

ERRORS: dict[str, Callable[[Any], Any]] = {
    "index too large": lambda d: d[d.metadata.num_frames],
    "index too small": lambda d: d.get_frame_at(-d.metadata.num_frames - 1),
    "one index too large": lambda d: d.get_frames_at([0, 10_000]),
    "played before the start": lambda d: d.get_frame_played_at(-0.1),
    "played after the end": lambda d: d.get_frame_played_at(d.metadata.end_stream_seconds),
    "range the wrong way round": lambda d: d.get_frames_played_in_range(1.0, 0.5),
    "range before the start": lambda d: d.get_frames_played_in_range(-1.0, 0.5),
    "range after the end": lambda d: d.get_frames_played_in_range(0.0, 1e6),
    "string index": lambda d: d["0"],
}


@pytest.mark.parametrize("call", CALLS)
def test_frames_are_torchcodecs(pair: tuple[VideoDecoder, Any], call: str) -> None:
    ours, theirs = pair
    check_same(CALLS[call](ours), CALLS[call](theirs))


@pytest.mark.parametrize("call", ERRORS)
def test_errors_are_torchcodecs(pair: tuple[VideoDecoder, Any], call: str) -> None:
    ours, theirs = pair
    with pytest.raises(Exception) as reference:  # noqa: PT011
        ERRORS[call](theirs)
    kinds = (IndexError, ValueError, TypeError)
    expected = reference.type if issubclass(reference.type, kinds) else IndexError
    with pytest.raises(expected):
        ERRORS[call](ours)


def test_length_and_order(clip: ClipMaker) -> None:
    decoder = VideoDecoder(clip("h264_bframes.mp4"), dimension_order="NHWC", num_threads=2)
    assert len(decoder) == 150
    assert decoder[0].shape == (180, 320, 3)
    np.testing.assert_array_equal(decoder[3].transpose(2, 0, 1), VideoDecoder(clip("h264_bframes.mp4"))[3])
    with pytest.raises(ValueError, match="dimension order"):
        VideoDecoder(clip("h264_bframes.mp4"), dimension_order="CHWN")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="path, bytes-like or file-like"):
        VideoDecoder(3)  # type: ignore[arg-type]


def test_batches_can_be_indexed_and_iterated(clip: ClipMaker) -> None:
    batch = VideoDecoder(clip("h264_bframes.mp4")).get_frames_in_range(0, 6)
    assert len(batch) == 6
    assert batch[2:4].data.shape == (2, 3, 180, 320)
    assert [float(frame.pts_seconds) for frame in batch] == batch.pts_seconds.tolist()
    data, pts, duration = VideoDecoder(clip("h264_bframes.mp4")).get_frame_at(5)
    assert (np.shape(data), pts, duration) == ((3, 180, 320), 0.2, 0.04)


def test_results_go_to_torch_without_a_copy(clip: ClipMaker) -> None:
    frame = VideoDecoder(clip("h264_bframes.mp4"))[0]
    tensor = torch.from_dlpack(frame)
    assert tensor.data_ptr() == frame.ctypes.data


def test_every_frame_at_once(clip: ClipMaker) -> None:
    path = clip("h264_vfr.mp4")
    check_same(VideoDecoder(path).get_all_frames(), torchcodec.VideoDecoder(path).get_all_frames())


def test_raw_planes_by_function(clip: ClipMaker) -> None:
    path = clip("h264_10bit_444.mp4")
    reference = frame_hashes(path, 0)
    assert hashes(yuv_frames_at(path, [20, 3, 3])) == [reference[i] for i in (20, 3, 3)]
    assert yuv_frames_at(path, []) == []


def test_errors_survive_pickling() -> None:
    error = DecodeError("clip.mp4", 0, "damaged")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == "clip.mp4: stream 0: damaged"
    assert (copy.source, copy.stream, copy.reason) == ("clip.mp4", 0, "damaged")
