"""Frames in chunks: all of them, in order, soon, and never many at a time."""

import io
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from flashcodec.serving import OUTPUT_LIMIT, scheduler_of
from flashcodec_clips import ClipMaker
from hypothesis import given, settings
from hypothesis import strategies as st

from flashcodec import RGBLayout, VideoDecoder, _core, reading


@settings(max_examples=30)
@given(
    frames=st.one_of(
        st.lists(st.integers(-150, 149), max_size=40),
        st.lists(st.integers(0, 149), max_size=150).map(sorted),
        st.just(list(range(150))),
    ),
    window_frames=st.sampled_from([1, 7, 40, 1000]),
    order=st.sampled_from(["NCHW", "NHWC"]),
)
def test_chunks_together_are_the_batch(clip: ClipMaker, frames: list[int], window_frames: int, order: Any) -> None:
    decoder = VideoDecoder(clip("h264_opengop.mp4"), size=(24, 32), dimension_order=order)
    frames = [frame % len(decoder) for frame in frames]
    expected = decoder.get_frames_at(frames)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "WINDOW_BYTES", window_frames * 24 * 32 * 3)
        chunks = list(decoder.stream(frames))
    assert all(len(chunk) for chunk in chunks)
    if not frames:
        assert chunks == []
        return
    for field in ("data", "pts_seconds", "duration_seconds", "indices"):
        joined = np.concatenate([getattr(chunk, field) for chunk in chunks])
        np.testing.assert_array_equal(joined, getattr(expected, field))


class Gate(io.BytesIO):
    """A file whose second half can only be read once it is opened."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.half = len(data)
        self.opened = threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > self.half:
            assert self.opened.wait(60)
        return super().read(size)


def test_the_first_frames_come_before_the_last_can_be_read(clip: ClipMaker) -> None:
    data = clip("h264_faststart.mp4").read_bytes()
    file = Gate(data)
    decoder = VideoDecoder(file, num_threads=1)
    decoder.plan(range(150))  # looks at every key packet once
    file.half = len(data) // 2
    chunks = decoder.stream(range(150))
    assert next(chunks).indices is not None  # would wait for ever if it needed the rest
    file.opened.set()
    assert 1 + sum(len(chunk) for chunk in chunks) >= 150 - 30


def test_wrong_frames_are_refused_before_anything_is_decoded(clip: ClipMaker) -> None:
    decoder = VideoDecoder(clip("h264_bframes.mp4"))
    with pytest.raises(IndexError):
        decoder.stream([0, 150])


def test_a_stream_may_be_left(clip: ClipMaker) -> None:
    decoder = VideoDecoder(clip("h264_bframes.mp4"), num_threads=2)
    for _ in range(5):
        for chunk in decoder.stream(range(150)):
            assert len(chunk)
            break
    assert len(decoder.get_frames_at([3])) == 1


class WatchedSession:
    """A session that tells whether the memory was still there when decoding to it ended."""

    def __init__(self, session: _core.Session, ended: list[bool]) -> None:
        self._session, self._ended = session, ended

    def add(self, core: Any, frames: Any, layout: Any, out: Any, **options: Any) -> None:
        self._memory = weakref.ref(out)
        self._session.add(core, frames, layout, out, **options)

    def take(self, timeout: float | None) -> _core.Output | None:
        return self._session.take(timeout)

    def cancel_all(self) -> None:
        self._ended.append(self._memory() is not None)
        self._session.cancel_all()


def test_decoding_ends_before_its_memory_goes(clip: ClipMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the window ahead, of which nothing has been taken yet."""
    sessions: list[weakref.ref[WatchedSession]] = []
    ended: list[bool] = []

    def session(reader: reading.FrameReader) -> WatchedSession:
        watched = WatchedSession(reader.engines.session(), ended)
        sessions.append(weakref.ref(watched))
        return watched

    monkeypatch.setattr(reading, "WINDOW_BYTES", 30 * 180 * 320 * 3)
    monkeypatch.setattr(reading.FrameReader, "session", session)
    chunks = VideoDecoder(clip("h264_bframes.mp4"), num_threads=1).stream(range(150))
    while len(sessions) < 2:
        next(chunks)
    del chunks
    assert [each() for each in sessions] == [None, None]
    assert len(ended) >= 2
    assert all(ended)


def test_a_stream_goes_on_after_its_decoder_was_closed(clip: ClipMaker) -> None:
    with VideoDecoder(clip("h264_bframes.mp4"), num_threads=1) as decoder:
        chunks = decoder.stream(range(150))
        found = [len(next(chunks))]
    rest = threading.Thread(target=lambda: found.extend(map(len, chunks)), daemon=True)
    rest.start()
    rest.join(60)
    assert sum(found) == 150


def peak_bytes(call: Callable[[], object]) -> int:
    """How much memory the process has at most meanwhile, above what it has before."""
    call()  # whatever is made once
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    before = psutil.Process().memory_info().rss
    call()
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024 - before


@pytest.mark.parametrize("kind", ["raise", "skip", "nearest"])
def test_a_batch_takes_the_memory_of_its_frames(clip: ClipMaker, kind: Any) -> None:
    data = clip("h264_faststart.mp4").read_bytes()
    if kind != "raise":
        data = data[: len(data) * 9 // 10]
    decoder = VideoDecoder(data, on_error=kind, size=(360, 640))
    assert peak_bytes(decoder.get_all_frames) < 150 * 360 * 640 * 3 * 1.1


def test_a_stream_takes_the_memory_of_two_windows(clip: ClipMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    window = 30 * 360 * 640 * 3
    monkeypatch.setattr(reading, "WINDOW_BYTES", window)
    decoder = VideoDecoder(clip("h264_bframes.mp4"), size=(360, 640))

    def consume() -> None:
        assert sum(len(chunk) for chunk in decoder.stream(range(150))) == 150

    assert peak_bytes(consume) < 2.25 * window


def test_memory_given_back_is_not_written_to(clip: ClipMaker) -> None:
    """Neither after a cancel nor after a failure."""
    decoder = VideoDecoder(clip("h264_bframes.mp4"))
    layout = RGBLayout(720, 1280, "NHWC")
    for round_ in range(10):
        session = _core.Session(scheduler_of(0), OUTPUT_LIMIT)
        out = np.zeros(layout.group_shape(150), np.uint8)
        request = session.add(decoder.bitstream.core, np.arange(150), layout.to_core(), out)
        for _ in range(round_ + 1):
            session.take(None)
        session.cancel(request)
        before = [int(frame.sum(dtype=np.int64)) for frame in out]
        decoder.get_frames_at([10 * round_])
        assert [int(frame.sum(dtype=np.int64)) for frame in out] == before
