"""VideoDecoder behaves as TorchCodec's: every call on both, side by side."""

import io
import mmap
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flashcodec.errors import OutOfRangeError
from flashcodec.timeline import Timeline
from flashcodec_clips import ClipMaker, frame_hashes, hashes, run_ffmpeg
from hypothesis import given, settings
from hypothesis import strategies as st

from flashcodec import DecodeError, Frame, FrameBatch, VideoDecoder, analyse_bitstream, yuv_frames_at

torchcodec = pytest.importorskip("torchcodec.decoders", reason="TorchCodec is the reference")
torch = pytest.importorskip("torch")

from flashcodec.torch import VideoDecoder as TensorDecoder  # noqa: E402

Pair = tuple[VideoDecoder, Callable[[], Any]]

NAMES = ["h264_bframes.mp4", "h264_vfr.mp4", "h264_edit_list.mp4", "vp9.webm", "hevc_opengop.mp4", "mpeg4.avi"]


@pytest.fixture(scope="module", params=NAMES)
def pair(request: pytest.FixtureRequest, clip: ClipMaker) -> Pair:
    """Return our decoder, used again and again, and what opens TorchCodec's anew: after get_frame_played_at, its
    get_frames_played_at of a file with an edit list may give frames of other times."""
    path = clip(request.param)
    return VideoDecoder(path), lambda: torchcodec.VideoDecoder(path)


def check_same(ours: Any, theirs: Any) -> None:
    if hasattr(theirs, "pts_seconds"):
        np.testing.assert_array_equal(ours.pts_seconds, theirs.pts_seconds)
        np.testing.assert_allclose(ours.duration_seconds, theirs.duration_seconds, rtol=1e-14)
        ours, theirs = ours.data, theirs.data
    assert ours.shape == tuple(theirs.shape)
    np.testing.assert_array_equal(ours, theirs)


CALLS: dict[str, Callable[[Any], Any]] = {
    "first": lambda d: d[0],
    "last": lambda d: d[-1],
    "numpy integer": lambda d: d[np.int64(5)],
    "bool": lambda d: d[True],
    "slice": lambda d: d[3:20:4],
    "negative slice": lambda d: d[-5:],
    "empty slice": lambda d: d[5:5],
    "slice before the start": lambda d: d[-9999:-9000],
    "slice beyond the end": lambda d: d[d.metadata.num_frames - 2 : 10_000],
    "iteration": lambda d: next(iter(d)),
    "frame": lambda d: d.get_frame_at(9),
    "frame by keyword": lambda d: d.get_frame_at(index=9),
    "frame by numpy integer": lambda d: d.get_frame_at(np.int64(2)),
    "frame by tensor": lambda d: d.get_frame_at(torch.tensor(2)),
    "negative frame": lambda d: d.get_frame_at(-3),
    "frames": lambda d: d.get_frames_at([2, 30, 11]),
    "frames by keyword": lambda d: d.get_frames_at(indices=[4]),
    "frames by tuple": lambda d: d.get_frames_at((2, 3)),
    "frames by range": lambda d: d.get_frames_at(range(3)),
    "frames by array": lambda d: d.get_frames_at(np.array([2, 30, 11])),
    "frames by tensor": lambda d: d.get_frames_at(torch.tensor([2, 30, 11])),
    "frames by 32 bit tensor": lambda d: d.get_frames_at(torch.tensor([2, 30], dtype=torch.int32)),
    "frames by numpy integers": lambda d: d.get_frames_at([np.int64(3), np.int64(1)]),
    "frames by tensors": lambda d: d.get_frames_at([torch.tensor(3), torch.tensor(1)]),
    "frames by a single number": lambda d: d.get_frames_at(3),
    "no frames": lambda d: d.get_frames_at(torch.tensor([], dtype=torch.int64)),
    "repeated frames": lambda d: d.get_frames_at([7, 7, 3, 7, -1]),
    "range": lambda d: d.get_frames_in_range(4, 30, 5),
    "range by keyword": lambda d: d.get_frames_in_range(start=4, stop=8, step=2),
    "range with open ends": lambda d: d.get_frames_in_range(None, 4),
    "range with negative ends": lambda d: d.get_frames_in_range(-4, 10_000),
    "range after the end": lambda d: d.get_frames_in_range(5000, 6000),
    "played at": lambda d: d.get_frame_played_at(0.31),
    "played at by keyword": lambda d: d.get_frame_played_at(seconds=0.31),
    "played at an integer": lambda d: d.get_frame_played_at(2),
    "played at a numpy number": lambda d: d.get_frame_played_at(np.float32(0.3)),
    "played at a tensor": lambda d: d.get_frame_played_at(torch.tensor(0.3)),
    "played at the very start": lambda d: d.get_frame_played_at(d.metadata.begin_stream_seconds),
    "played at the very end": lambda d: d.get_frame_played_at(np.nextafter(d.metadata.end_stream_seconds, 0)),
    "several played at": lambda d: d.get_frames_played_at([1.0, 0.2, 1.039]),
    "several played at by keyword": lambda d: d.get_frames_played_at(seconds=(0.6, 0.5)),
    "several played at integers": lambda d: d.get_frames_played_at([1, 0.5]),
    "several played at an array": lambda d: d.get_frames_played_at(np.array([0.1, 0.7])),
    "several played at a tensor": lambda d: d.get_frames_played_at(torch.tensor([0.1, 0.7])),
    "several played at a single number": lambda d: d.get_frames_played_at(0.1),
    "none played at": lambda d: d.get_frames_played_at([]),
    "played in range": lambda d: d.get_frames_played_in_range(0.1, 0.5),
    "played in range by keyword": lambda d: d.get_frames_played_in_range(start_seconds=0.1, stop_seconds=0.5, fps=20),
    "played in an empty range": lambda d: d.get_frames_played_in_range(0.1, 0.1),
    "resampled empty range": lambda d: d.get_frames_played_in_range(0.1, 0.1, fps=0),
    "played between two frames": lambda d: d.get_frames_played_in_range(0.41, 0.415),
    "played to the end": lambda d: d.get_frames_played_in_range(1.5, d.metadata.end_stream_seconds),
    "resampled down": lambda d: d.get_frames_played_in_range(0.1, 1.5, fps=7),
    "resampled up": lambda d: d.get_frames_played_in_range(0.1, 0.4, fps=60),
    "resampled to half a frame": lambda d: d.get_frames_played_in_range(0.1, 0.15, fps=10),
    "resampled to less than half a frame": lambda d: d.get_frames_played_in_range(0.5, 1, fps=1 - 2**-53),
    "resampled to nothing": lambda d: d.get_frames_played_in_range(0.1, 0.11, fps=10),
    "all resampled": lambda d: d.get_all_frames(fps=3),
}

# Where TorchCodec raises a RuntimeError of its C++ code, what we raise is also of the type beside the call.
ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception] | None]] = {
    "index too large": (lambda d: d[d.metadata.num_frames], None),
    "index too small": (lambda d: d.get_frame_at(-d.metadata.num_frames - 1), None),
    "one index too large": (lambda d: d.get_frames_at([0, 10_000]), None),
    "one index too small": (lambda d: d.get_frames_at([0, -10_000]), None),
    "string key": (lambda d: d["0"], None),
    "float key": (lambda d: d[1.0], None),
    "list key": (lambda d: d[[0]], None),
    "tensor key": (lambda d: d[torch.tensor(3)], None),
    "slice without a step": (lambda d: d[::0], None),
    "range without a step": (lambda d: d.get_frames_in_range(0, 5, 0), None),
    "range of floats": (lambda d: d.get_frames_in_range(0.0, 5), None),
    "float index": (lambda d: d.get_frame_at(1.5), TypeError),
    "string index": (lambda d: d.get_frame_at("1"), TypeError),
    "no index": (lambda d: d.get_frame_at(None), TypeError),
    "float indices": (lambda d: d.get_frames_at([1.0, 2.0]), TypeError),
    "bool indices": (lambda d: d.get_frames_at([True, False]), TypeError),
    "no indices": (lambda d: d.get_frames_at(None), TypeError),
    "string indices": (lambda d: d.get_frames_at("12"), None),
    "a set of indices": (lambda d: d.get_frames_at({1, 2}), TypeError),
    "played before the start": (lambda d: d.get_frame_played_at(-0.1), None),
    "played after the end": (lambda d: d.get_frame_played_at(d.metadata.end_stream_seconds), None),
    "played at no time": (lambda d: d.get_frame_played_at(float("nan")), None),
    "played at a string": (lambda d: d.get_frame_played_at("1"), None),
    "played at None": (lambda d: d.get_frame_played_at(None), None),
    "played at a list": (lambda d: d.get_frame_played_at([0.1]), None),
    "several played before the start": (lambda d: d.get_frames_played_at([0.1, -0.1]), IndexError),
    "several played after the end": (lambda d: d.get_frames_played_at([1e6]), IndexError),
    "several played at no time": (lambda d: d.get_frames_played_at([float("nan")]), IndexError),
    "several played at None": (lambda d: d.get_frames_played_at(None), None),
    "several played at strings": (lambda d: d.get_frames_played_at(["a"]), None),
    "range the wrong way round": (lambda d: d.get_frames_played_in_range(1.0, 0.5), None),
    "range before the start": (lambda d: d.get_frames_played_in_range(-1.0, 0.5), None),
    "range to after the end": (lambda d: d.get_frames_played_in_range(0.1, 1e6), None),
    "range from no time": (lambda d: d.get_frames_played_in_range(float("nan"), 0.5), None),
    "range to no time": (lambda d: d.get_frames_played_in_range(0.1, float("nan")), None),
    "range of strings": (lambda d: d.get_frames_played_in_range("0", 1), None),
    "empty range at the end": (lambda d: d.get_frames_played_in_range(*[d.metadata.end_stream_seconds] * 2), None),
    "rate of zero": (lambda d: d.get_frames_played_in_range(0.1, 1, fps=0), ValueError),
    "negative rate": (lambda d: d.get_all_frames(fps=-1), ValueError),
    "rate that is none": (lambda d: d.get_all_frames(fps=float("nan")), ValueError),
    "infinite rate": (lambda d: d.get_all_frames(fps=float("inf")), ValueError),
    "rate of a string": (lambda d: d.get_all_frames(fps="a"), TypeError),
}


@pytest.mark.parametrize("call", CALLS)
def test_frames_are_torchcodecs(pair: Pair, call: str) -> None:
    ours, open_theirs = pair
    check_same(CALLS[call](ours), CALLS[call](open_theirs()))


@pytest.mark.parametrize("call", ERRORS)
def test_errors_are_torchcodecs(pair: Pair, call: str) -> None:
    ours, open_theirs = pair
    action, expected = ERRORS[call]
    with pytest.raises(Exception) as reference:  # noqa: PT011
        action(open_theirs())
    with pytest.raises(reference.type) as caught:
        action(ours)
    if expected is not None:
        assert issubclass(reference.type, RuntimeError)
        assert isinstance(caught.value, expected)


def test_a_frame_is_on_show_until_the_next_one(clip: ClipMaker) -> None:
    """Also where its duration ends before. There TorchCodec's get_frame_played_at gives the next frame already, but
    its get_frames_played_at agrees."""
    path = clip("h264_vfr.mp4")
    frame = VideoDecoder(path).get_frame_played_at(1.0)
    assert frame.pts_seconds < 1.0 > frame.pts_seconds + frame.duration_seconds
    check_same(frame, torchcodec.VideoDecoder(path).get_frames_played_at([1.0])[0])


@settings(max_examples=20)
@given(data=st.data())
def test_any_times_give_torchcodecs_frames(pair: Pair, data: st.DataObject) -> None:
    """Above all those on the edge between two frames."""
    ours, open_theirs = pair
    theirs = open_theirs()
    meta = ours.metadata
    edges = [*ours.bitstream.pts_seconds.tolist(), *(k / 25 for k in range(25)), *(k / 30 for k in range(30))]
    near_edges = st.sampled_from(edges).flatmap(
        lambda t: st.sampled_from([t, float(np.nextafter(t, -1)), float(np.nextafter(t, 99))])
    )
    inside = st.one_of(near_edges, st.floats(meta.begin_stream_seconds, meta.end_stream_seconds)).filter(
        lambda t: meta.begin_stream_seconds <= t < meta.end_stream_seconds
    )
    times = data.draw(st.lists(inside, min_size=2, max_size=6))
    check_same(ours.get_frames_played_at(times), theirs.get_frames_played_at(times))
    start, stop = sorted(times[:2])
    check_same(ours.get_frames_played_in_range(start, stop), theirs.get_frames_played_in_range(start, stop))
    fps = data.draw(st.sampled_from([1, 3, 24, 25, 29.97, 30, 7.5]))
    check_same(ours.get_frames_played_in_range(start, stop, fps), theirs.get_frames_played_in_range(start, stop, fps))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
def test_every_frame_is_torchcodecs(clip: ClipMaker, name: str, order: Any) -> None:
    path = clip(name)
    ours = TensorDecoder(path, dimension_order=order).get_all_frames()
    theirs = torchcodec.VideoDecoder(path, dimension_order=order).get_all_frames()
    check_same(ours, theirs)
    assert ours.data.stride() == theirs.data.stride()


@pytest.mark.parametrize("name", [*NAMES, "rotated.mp4", "odd_size.mp4", "h264_10bit_444.mp4"])
def test_metadata_are_torchcodecs(clip: ClipMaker, name: str) -> None:
    ours, theirs = VideoDecoder(clip(name)), torchcodec.VideoDecoder(clip(name))
    assert len(ours) == len(theirs) == len(list(ours))
    assert ours.stream_index == theirs.stream_index
    for field in vars(ours.metadata):
        expected = getattr(theirs.metadata, field)
        if field in ("bit_rate", "pixel_aspect_ratio") and expected == 0:
            expected = None  # unknown
        if field == "average_fps_from_header" and name == "h264_vfr.mp4":
            continue  # TorchCodec gives the rate of the time base
        if isinstance(expected, float):
            assert getattr(ours.metadata, field) == pytest.approx(expected, rel=1e-9), field
        else:
            assert getattr(ours.metadata, field) == expected, field


GOOD_ARGUMENTS: list[dict[str, Any]] = [
    {"seek_mode": "exact"},
    {"seek_mode": "approximate"},
    {"dimension_order": "NHWC"},
    {"stream_index": 0},
    {"stream_index": None},
    {"num_ffmpeg_threads": 0},
    {"num_ffmpeg_threads": 1},
    {"num_ffmpeg_threads": 3},
    {"device": None},
    {"device": "cpu"},
    {"device": "cpu:0"},
    {"device": torch.device("cpu")},
    {"transforms": None},
    {"custom_frame_mappings": None},
]

BAD_ARGUMENTS: list[tuple[dict[str, Any], type[Exception] | None]] = [
    ({"seek_mode": "fast"}, None),
    ({"seek_mode": None}, None),
    ({"dimension_order": "CHWN"}, None),
    ({"dimension_order": None}, None),
    ({"stream_index": 1}, None),
    ({"stream_index": 99}, None),
    ({"stream_index": "0"}, None),
    ({"stream_index": 0.5}, None),
    ({"num_ffmpeg_threads": None}, None),
    ({"num_ffmpeg_threads": "1"}, TypeError),
    ({"num_ffmpeg_threads": 1.5}, TypeError),
    ({"device": "cuda"}, RuntimeError),
    ({"device": "cuda:0"}, RuntimeError),
    ({"device": torch.device("cuda:1")}, RuntimeError),
    ({"device": "xpu"}, ValueError),
    ({"device": "nonsense"}, ValueError),
    ({"device": ""}, ValueError),
    ({"custom_frame_mappings": "{}", "seek_mode": "approximate"}, None),
    ({"unknown": 1}, None),
]


@pytest.mark.parametrize("arguments", GOOD_ARGUMENTS, ids=str)
def test_arguments_are_torchcodecs(clip: ClipMaker, arguments: dict[str, Any]) -> None:
    path = clip("h264_bframes.mp4")
    check_same(TensorDecoder(path, **arguments)[17], torchcodec.VideoDecoder(path, **arguments)[17])


@pytest.mark.parametrize(("arguments", "expected"), BAD_ARGUMENTS, ids=str)
def test_bad_arguments_are_torchcodecs(
    clip: ClipMaker, arguments: dict[str, Any], expected: type[Exception] | None
) -> None:
    path = clip("h264_bframes.mp4")
    if torch.cuda.is_available() and str(arguments.get("device", "")).startswith("cuda"):
        pytest.skip("TorchCodec may well have this device")
    with pytest.raises(Exception) as reference:  # noqa: PT011
        torchcodec.VideoDecoder(path, **arguments)
    with pytest.raises(reference.type) as caught:
        TensorDecoder(path, **arguments)
    assert expected is None or isinstance(caught.value, expected)


def test_arguments_are_by_keyword_only(clip: ClipMaker) -> None:
    for decoder in (VideoDecoder, TensorDecoder, torchcodec.VideoDecoder):
        with pytest.raises(TypeError, match="positional"):
            decoder(clip("h264_bframes.mp4"), 0)


def test_bad_arguments_of_our_own_say_what_is_wrong(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    bad: list[tuple[dict[str, Any], str]] = [
        ({"num_threads": -1}, "num_threads"),
        ({"snap": "nearest"}, "snap"),
        ({"on_error": "ignore"}, "on_error"),
        ({"size": 0}, "size"),
        ({"size": (1, 2, 3)}, "size"),
        ({"size": (-4, 4)}, "size"),
        ({"interpolation": "nearest"}, "interpolation"),
        ({"device": "cuda"}, "flashcodec.torch"),
        ({"stream_index": -1}, "stream_index"),
        ({"stream_index": 2**40}, "not a valid stream"),
    ]
    for arguments, message in bad:
        with pytest.raises(ValueError, match=message):
            VideoDecoder(path, **arguments)
    with pytest.raises(TypeError, match="integer"):
        VideoDecoder(path, size=(2.5, 3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stream_index must be an integer"):
        VideoDecoder(path, stream_index=0.5)  # type: ignore[arg-type]


def sources(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {
        "path": path,
        "str": str(path),
        "bytes": data,
        "file": path.open("rb"),
        "unbuffered file": path.open("rb", buffering=0),
        "BytesIO": io.BytesIO(data),
        "tensor": torch.frombuffer(bytearray(data), dtype=torch.uint8),
    }


@pytest.mark.parametrize("kind", ["path", "str", "bytes", "file", "unbuffered file", "BytesIO", "tensor"])
def test_sources_are_torchcodecs(clip: ClipMaker, kind: str) -> None:
    path = clip("h264_opengop.mp4")
    check_same(TensorDecoder(sources(path)[kind])[30], torchcodec.VideoDecoder(sources(path)[kind])[30])


def test_more_sources(clip: ClipMaker) -> None:
    path = clip("h264_opengop.mp4")
    data = path.read_bytes()
    expected = VideoDecoder(path)[30]
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(VideoDecoder(mapped)))[30], expected)
    for source in (bytearray(data), memoryview(data), mapped, analyse_bitstream(path)):
        np.testing.assert_array_equal(VideoDecoder(source)[30], expected)


def bad_sources(path: Path) -> list[tuple[Any, type[Exception] | None]]:
    return [
        (3, None),
        (None, None),
        ([], None),
        (io.StringIO("text"), TypeError),
        (path.open("r"), TypeError),
        ("/nowhere.mp4", None),
        ("", None),
        (b"abc", None),
        (io.BytesIO(b""), None),
        (torch.zeros(5), ValueError),
        (torch.zeros((1, 5), dtype=torch.uint8), ValueError),
    ]


def test_bad_sources_are_torchcodecs(clip: ClipMaker) -> None:
    for source, expected in bad_sources(clip("h264_bframes.mp4")):
        with pytest.raises(Exception) as reference:  # noqa: PT011
            torchcodec.VideoDecoder(source)
        with pytest.raises(expected or reference.type) as caught:
            TensorDecoder(source)
        assert type(caught.value) is not RuntimeError


def test_a_frame_is_torchcodecs(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    ours, theirs = VideoDecoder(path).get_frame_at(5), torchcodec.VideoDecoder(path).get_frame_at(5)
    assert isinstance(ours, Frame)
    data, pts, duration = ours
    assert (np.shape(data), pts, duration) == ((3, 180, 320), *list(theirs)[1:])
    assert type(pts) is type(duration) is float
    assert repr(ours).replace("(3, 180, 320)", "torch.Size([3, 180, 320])") == repr(theirs)
    for frame in (ours, theirs):
        with pytest.raises(TypeError):
            len(frame)
        with pytest.raises(TypeError):
            frame[0]
        with pytest.raises(ValueError, match="3-dimensional"):
            type(frame)(data[0], 0.0, 0.0)


def test_a_batch_is_torchcodecs(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    ours = VideoDecoder(path).get_frames_in_range(0, 6)
    theirs = torchcodec.VideoDecoder(path).get_frames_in_range(0, 6)
    assert isinstance(ours, FrameBatch)
    assert len(ours) == len(theirs) == 6
    for key in (0, slice(2, 4), slice(None, None, 2), [0, 5], slice(9, None)):
        check_same(ours[key], theirs[key])
    for mine, other in zip(ours, theirs, strict=True):
        check_same(mine, other)
    assert (ours.data.dtype, ours.pts_seconds.dtype, ours.duration_seconds.dtype) == (np.uint8, float, float)
    assert ours.indices is not None
    assert ours.indices.tolist() == list(range(6))
    assert ours[4].indices == 4
    assert ours.damaged == {}
    assert [line.split(":")[0] for line in repr(theirs).split("\n") if "seconds" in line] == [
        line.split(":")[0] for line in repr(ours).split("\n") if "seconds" in line
    ]
    for batch in (ours, theirs):
        with pytest.raises(IndexError):
            batch[6]
        with pytest.raises(ValueError, match="3-dimensional"):
            type(batch)(batch.data[0][0], batch.pts_seconds, batch.duration_seconds)
        with pytest.raises(ValueError, match="shape"):
            type(batch)(batch.data, batch.pts_seconds[:5], batch.duration_seconds)


@pytest.mark.parametrize("large", [2**63, 2**64 - 1])
def test_numbers_beyond_int64_are_no_frames(clip: ClipMaker, large: int) -> None:
    """As int64 they are negative, and would count from the end."""
    decoder = VideoDecoder(clip("h264_bframes.mp4"))
    for call in (lambda: decoder[large], lambda: decoder.get_frame_at(large)):
        with pytest.raises(IndexError, match="must be less than 150"):
            call()
    with pytest.raises(IndexError, match="must be less than 150"):
        decoder.get_frames_at(np.array([large], np.uint64))


def test_narrow_floats_are_not_rounded_into_the_video() -> None:
    begin = 0.06673333333333334
    before = np.float32(begin)
    assert float(before) < begin
    timeline = Timeline(np.array([begin, 0.1]), 0.2)
    with pytest.raises(OutOfRangeError):
        timeline.at(np.array([before]))
    with pytest.raises(ValueError, match="Invalid start seconds"):
        timeline.between(before, 0.2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Invalid start seconds"):
        timeline.at_rate(before, 0.2, 25)  # type: ignore[arg-type]


def test_slices_may_go_backwards(clip: ClipMaker) -> None:
    decoder = VideoDecoder(clip("h264_bframes.mp4"))
    np.testing.assert_array_equal(decoder[20:10:-3], decoder.get_frames_at([20, 17, 14, 11]).data)
    assert decoder.get_frames_in_range(5, 0).data.shape == (0, 3, 180, 320)


def test_lists_of_lists_are_no_frames(clip: ClipMaker) -> None:
    decoder = VideoDecoder(clip("h264_bframes.mp4"))
    with pytest.raises(ValueError, match="list"):
        decoder.get_frames_at([[1, 2], [3, 4]])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="list"):
        decoder.get_frames_played_at([[0.1], [0.2]])  # type: ignore[list-item]


def test_results_go_to_torch_without_a_copy(clip: ClipMaker) -> None:
    decoder = VideoDecoder(clip("h264_bframes.mp4"))
    for data in (decoder[0], decoder[3:9], decoder.get_frames_at([1]).data):
        tensor = torch.from_dlpack(data)
        assert tensor.data_ptr() == data.ctypes.data
        assert tensor.stride() == data.strides


def test_size(clip: ClipMaker, tmp_path: Path) -> None:
    path, portrait = clip("h264_bframes.mp4"), tmp_path / "portrait.mp4"
    run_ffmpeg("-f", "lavfi", "-i", "testsrc2=s=96x160:d=0.2", str(portrait))
    assert VideoDecoder(path, size=(50, 70))[0].shape == (3, 50, 70)
    assert VideoDecoder(path, size=90)[0].shape == (3, 90, 160)
    assert VideoDecoder(portrait, size=48, dimension_order="NHWC")[0].shape == (80, 48, 3)
    assert VideoDecoder(path, size=np.int64(90))[0].shape == (3, 90, 160)  # type: ignore[arg-type]
    np.testing.assert_array_equal(VideoDecoder(path, size=(180, 320))[7], VideoDecoder(path)[7])
    smooth, sharp = (VideoDecoder(path, size=48, interpolation=kind)[7] for kind in ("area", "bicubic"))
    assert smooth.shape == sharp.shape
    assert (smooth != sharp).any()


def test_snapping_gives_key_frames(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    exact = VideoDecoder(path)
    batch = VideoDecoder(path, snap="keyframe").get_frames_at([0, 14, 16, 40, -1])
    assert batch.indices is not None
    assert batch.indices.tolist() == [0, 0, 30, 30, 120]
    check_same(batch, exact.get_frames_at([0, 0, 30, 30, 120]))
    assert VideoDecoder(path, snap="keyframe").get_frame_played_at(1.0).pts_seconds == 1.2
    near = VideoDecoder(path, snap="keyframe", snap_tolerance=0.2).get_frames_at([3, 27, 10])
    assert near.indices is not None
    assert near.indices.tolist() == [0, 30, 10]


def test_fast_frames_are_nearly_the_same(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    exact, fast = VideoDecoder(path).get_frames_at([0, 77]), VideoDecoder(path, fast=True).get_frames_at([0, 77])
    np.testing.assert_array_equal(exact.data[0], fast.data[0])
    assert np.abs(exact.data.astype(int) - fast.data).mean() < 6


def test_plans_are_for_the_frames_that_would_be_decoded(clip: ClipMaker) -> None:
    path = clip("h264_bframes.mp4")
    assert VideoDecoder(path).plan([5, -1]) == VideoDecoder(path).plan([5, 149])
    assert VideoDecoder(path, snap="keyframe").plan([5, -1]).packets_needed == 2


def test_progress_is_reported(clip: ClipMaker) -> None:
    decoder = VideoDecoder(clip("h264_bframes.mp4"))
    for call in (
        lambda progress: decoder.get_frames_at([5, 5, 60], progress=progress),
        lambda progress: decoder.get_frames_in_range(0, 3, progress=progress),
        lambda progress: decoder.get_frames_played_at([0.1, 0.2, 3.0], progress=progress),
        lambda progress: decoder.get_frames_played_in_range(0.0, 0.12, progress=progress),
        lambda progress: decoder.get_all_frames(fps=0.5, progress=progress),
    ):
        seen: list[tuple[int, int]] = []
        call(lambda done, total, seen=seen: seen.append((done, total)))
        assert {total for _, total in seen} == {3}
        done = [done for done, _ in seen]
        assert done == sorted(set(done))
        assert done[-1] == 3


def test_an_error_in_progress_ends_the_request(clip: ClipMaker) -> None:
    decoder = VideoDecoder(clip("h264_bframes.mp4"))

    def fail(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decoder.get_all_frames(progress=fail)
    np.testing.assert_array_equal(decoder[3], VideoDecoder(clip("h264_bframes.mp4"))[3])


def test_a_closed_decoder_says_so(clip: ClipMaker) -> None:
    with VideoDecoder(clip("h264_bframes.mp4"), num_threads=2) as decoder:
        frame = decoder[3]
    decoder.close()
    assert len(decoder) == 150
    np.testing.assert_array_equal(frame, VideoDecoder(clip("h264_bframes.mp4"))[3])
    for call in (lambda: decoder[3], lambda: decoder.get_all_frames(), lambda: decoder.bitstream):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_raw_planes_by_function(clip: ClipMaker) -> None:
    path = clip("h264_10bit_444.mp4")
    reference = frame_hashes(path, 0)
    assert hashes(yuv_frames_at(path, [20, 3, 3])) == [reference[i] for i in (20, 3, 3)]
    assert yuv_frames_at(path, []) == []


def test_errors_survive_pickling() -> None:
    error = DecodeError("clip.mp4", 0, "damaged", 7)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == "clip.mp4: stream 0: damaged"
    assert (copy.source, copy.stream, copy.reason, copy.position) == ("clip.mp4", 0, "damaged", 7)
