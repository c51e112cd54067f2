"""Damaged videos: what is intact comes out as if nothing were wrong, and the batch tells what is not."""

import gc
import io
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from flashcodec_clips import ClipMaker
from hypothesis import given, settings
from hypothesis import strategies as st

from flashcodec import DamagedError, DecodeError, FrameBatch, VideoDecoder

NAME = "h264_faststart.mp4"  # 150 frames, a key frame every 30


@pytest.fixture(scope="module")
def whole(clip: ClipMaker) -> FrameBatch:
    return VideoDecoder(clip(NAME)).get_all_frames()


@pytest.fixture(scope="module")
def cut(clip: ClipMaker) -> bytes:
    """The first 60 % of the file: its index is complete, its later frames are not there."""
    data = clip(NAME).read_bytes()
    return data[: len(data) * 6 // 10]


def numbers(batch: FrameBatch) -> npt.NDArray[np.int64]:
    assert batch.indices is not None
    return batch.indices


def check_frames(batch: FrameBatch, whole: FrameBatch) -> None:
    """Each frame is the one that its number says, with its time."""
    frames = numbers(batch)
    np.testing.assert_array_equal(batch.data, whole.data[frames])
    np.testing.assert_array_equal(batch.pts_seconds, whole.pts_seconds[frames])
    np.testing.assert_array_equal(batch.duration_seconds, whole.duration_seconds[frames])


def test_raise_is_the_default(cut: bytes) -> None:
    decoder = VideoDecoder(cut)
    with pytest.raises(DamagedError, match=r"frame \d+ could not be decoded.*truncated") as caught:
        decoder.get_frames_at([0, 1, 149, 2])
    assert caught.value.position == 149
    assert len(decoder.get_frames_at([0, 1, 2])) == 3


def test_skip_leaves_damaged_frames_out(cut: bytes, whole: FrameBatch) -> None:
    batch = VideoDecoder(cut, on_error="skip").get_all_frames()
    first_lost = min(batch.damaged)
    assert 60 < first_lost < 120
    assert sorted([*numbers(batch), *batch.damaged]) == list(range(150))
    assert numbers(batch).max() < first_lost + 10
    check_frames(batch, whole)
    for frame, error in batch.damaged.items():
        assert isinstance(error, DamagedError)
        assert error.position == frame
        assert "truncated" in str(error)


@settings(max_examples=25)
@given(frames=st.lists(st.integers(0, 149), min_size=1, max_size=12), kind=st.sampled_from(["skip", "nearest"]))
def test_any_list_of_frames(cut: bytes, whole: FrameBatch, frames: list[int], kind: Any) -> None:
    decoder = VideoDecoder(cut, on_error=kind)
    lost = set(decoder.get_all_frames().damaged)
    if lost.issuperset(frames):
        with pytest.raises(DamagedError) as caught:
            decoder.get_frames_at(frames)
        assert caught.value.position == frames[0]
        return
    batch = decoder.get_frames_at(frames)
    check_frames(batch, whole)
    assert set(batch.damaged) == lost.intersection(frames)
    intact = [frame for frame in frames if frame not in lost]
    if kind == "skip":
        assert numbers(batch).tolist() == intact
        return
    assert len(batch) == len(frames)
    for asked, given_out in zip(frames, numbers(batch).tolist(), strict=True):
        assert abs(asked - given_out) == min(abs(asked - frame) for frame in intact)


def test_times_with_a_rate(cut: bytes, whole: FrameBatch) -> None:
    every = VideoDecoder(cut, on_error="skip").get_all_frames(fps=5)
    assert 12 < len(every) < 30
    np.testing.assert_allclose(every.pts_seconds, np.arange(len(every)) / 5, rtol=1e-14)
    np.testing.assert_array_equal(every.data, whole.data[::5][: len(every)])
    filled = VideoDecoder(cut, on_error="nearest").get_all_frames(fps=5)
    np.testing.assert_allclose(filled.pts_seconds, np.arange(30) / 5, rtol=1e-14)
    assert (numbers(filled)[len(every) :] == numbers(every)[-1]).all()


@pytest.mark.parametrize("kind", ["skip", "nearest"])
def test_a_single_frame_has_no_neighbours(cut: bytes, kind: Any) -> None:
    decoder = VideoDecoder(cut, on_error=kind)
    for call in (lambda: decoder[149], lambda: decoder.get_frame_at(-1), lambda: decoder.get_frame_played_at(5.99)):
        with pytest.raises(DamagedError, match="frame 149"):
            call()
    assert decoder[:0].shape == (0, 3, 180, 320)


@pytest.mark.parametrize("kind", ["raise", "skip", "nearest"])
def test_a_source_that_cannot_be_opened_is_always_an_error(clip: ClipMaker, kind: Any) -> None:
    with pytest.raises(DecodeError):
        VideoDecoder(clip(NAME).read_bytes()[:1000], on_error=kind)


class BadSectors(io.BytesIO):
    """A file that cannot be read at some places."""

    hole = range(0)

    def read(self, size: int | None = -1, /) -> bytes:
        begin = self.tell()
        data = super().read(size)
        if begin < self.hole.stop and self.hole.start < begin + len(data):
            raise OSError("bad sector")
        return data


@settings(max_examples=25)
@given(
    name=st.sampled_from([NAME, "h264_opengop.mp4", "hevc_opengop.mp4", "h264_bframes.mkv"]),
    place=st.floats(0.1, 0.9),
    size=st.integers(1, 20_000),
    kind=st.sampled_from(["skip", "nearest"]),
)
def test_holes_in_a_file(clip: ClipMaker, name: str, place: float, size: int, kind: Any) -> None:
    """What does not depend on them comes out bit for bit."""
    data = clip(name).read_bytes()
    whole = VideoDecoder(data, size=(48, 64)).get_all_frames()
    file = BadSectors(data)
    decoder = VideoDecoder(file, on_error=kind, size=(48, 64))
    file.hole = range(begin := int(place * len(data)), begin + size)
    batch = decoder.get_all_frames()
    check_frames(batch, whole)
    assert 0 < len(batch.damaged) < len(whole)
    assert all("bad sector" in str(error) or "damaged" in str(error) for error in batch.damaged.values())
    if kind == "skip":
        assert sorted([*numbers(batch), *batch.damaged]) == list(range(len(whole)))


def test_concealed_frames_are_named(clip: ClipMaker) -> None:
    """They are returned, as by TorchCodec and FFmpeg, but not without a word."""
    data = bytearray(clip("h264_faststart.mp4").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 3000] = bytes(3000)
    lost = VideoDecoder(bytes(data), on_error="skip").get_all_frames().damaged
    shown = [frame for frame, error in lost.items() if "could not be decoded" not in error.reason]
    assert shown
    batch = VideoDecoder(bytes(data)).get_frames_at([0, *shown])
    assert numbers(batch).tolist() == [0, *shown]
    assert batch.damaged
    assert set(batch.damaged).issubset(shown)
    assert all("concealed" in str(error) for error in batch.damaged.values())


@pytest.mark.parametrize("kind", ["skip", "nearest"])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_error_of_all_frames_keeps_no_file_open(cut: bytes, kind: Any, streamed: bool) -> None:
    """Once it is gone, without the garbage collector."""

    class File(io.BytesIO):
        pass

    def fail(file: File) -> None:
        decoder = VideoDecoder(file, on_error=kind, num_threads=1)
        with pytest.raises(DamagedError), decoder:
            list(decoder.stream([148, 149])) if streamed else decoder.get_frames_at([148, 149])

    gc.collect()
    gc.disable()
    try:
        file = File(cut)
        gone = weakref.ref(file)
        fail(file)
        del file
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", ["skip", "nearest"])
def test_streams(cut: bytes, whole: FrameBatch, kind: Any) -> None:
    decoder = VideoDecoder(cut, on_error=kind)
    frames = [*range(0, 150, 2), 7, 3]
    expected = decoder.get_frames_at(frames)
    damaged: dict[int, DecodeError] = {}
    seen = []
    for chunk in decoder.stream(frames):
        assert len(chunk)
        check_frames(chunk, whole)
        damaged |= chunk.damaged
        seen += numbers(chunk).tolist()
    if kind == "skip":
        assert seen == numbers(expected).tolist()
    else:
        assert len(seen) == len(frames)
        assert set(damaged) == set(expected.damaged)
    with pytest.raises(DamagedError, match=r"frame 14\d"):
        list(decoder.stream(range(140, 150)))
    with pytest.raises(DamagedError):
        list(VideoDecoder(cut).stream(frames))
