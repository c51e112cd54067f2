"""Many requests on one pool: turns, priorities, memory, and takers that do not take."""

import itertools
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from flashcodec_clips import ClipMaker

import flashcodec
from flashcodec import Bitstream, DecodingOutput, FlashCodec, RGBLayout, VideoDecoder

TIMEOUT = 60.0
SMALL = RGBLayout(32, 32)


class Gate:
    """A video file whose reading waits until the gate is opened, so that an engine is busy until then."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("rb")
        self._open = threading.Event()
        self._open.set()
        self._used = threading.Event()

    def read(self, size: int) -> bytes:
        if not self._open.is_set():
            self._used.set()
        assert self._open.wait(TIMEOUT)
        return self._file.read(size)

    def seek(self, offset: int, whence: int) -> int:
        return self._file.seek(offset, whence)

    def open(self) -> None:
        self._open.set()

    def occupy(self, codec: FlashCodec) -> None:
        """A request that keeps an engine of the codec waiting at the gate; it is there by the time this returns."""
        self.occupy_with(codec, flashcodec.analyse_bitstream(self), [0])

    def occupy_with(self, codec: FlashCodec, stream: Bitstream, frames: Sequence[int]) -> None:
        """The same with frames of this file."""
        self._open.clear()
        codec.add_decoding_request(stream, frames, SMALL)
        assert self._used.wait(TIMEOUT)


@pytest.fixture
def gate(clip: ClipMaker) -> Iterator[Gate]:
    gate = Gate(clip("h264_bframes.mp4"))
    yield gate
    gate.open()


@pytest.fixture(scope="module")
def stream(clip: ClipMaker) -> Bitstream:
    return flashcodec.analyse_bitstream(clip("h264_bframes.mp4"))


def outputs_of(codec: FlashCodec, requests: int) -> list[DecodingOutput]:
    outputs = []
    while requests:
        output = codec.get_decoding_output(TIMEOUT)
        assert output is not None
        assert output.error is None
        outputs.append(output)
        requests -= output.done
    return outputs


def test_a_higher_priority_goes_first(stream: Bitstream, gate: Gate) -> None:
    with FlashCodec(num_threads=1) as codec:
        gate.occupy(codec)
        low = codec.add_decoding_request(stream, range(0, 150, 10), SMALL, priority=-1)
        middle = codec.add_decoding_request(stream, range(0, 150, 10), SMALL)
        high = codec.add_decoding_request(stream, range(0, 150, 10), SMALL, priority=7)
        gate.open()
        order = [output.request for output in outputs_of(codec, 4)]
    assert order[1:] == [high] * 15 + [middle] * 15 + [low] * 15


def test_turns_take_the_place_of_length(stream: Bitstream, gate: Gate) -> None:
    """Those of the same priority go by them, however much there is left to decode, and as they are changed."""
    with FlashCodec(num_threads=1) as codec:
        gate.occupy(codec)
        short = codec.add_decoding_request(stream, [140], SMALL, turn=3.0)
        long = codec.add_decoding_request(stream, range(0, 150, 10), SMALL, turn=2.0)
        late = codec.add_decoding_request(stream, [140], SMALL, turn=float("inf"))
        moved = codec.add_decoding_request(stream, [140], SMALL, turn=4.0)
        urgent = codec.add_decoding_request(stream, [140], SMALL, priority=1, turn=1e12)
        codec.set_turn(moved, 1.0)
        codec.set_turn(12345, 1.0)
        gate.open()
        order = [output.request for output in outputs_of(codec, 6)]
        codec.set_turn(moved, 1.0)
        with pytest.raises(ValueError, match="turn"):
            codec.set_turn(moved, float("nan"))
    assert order[1:] == [urgent, moved, *[long] * 15, short, late]


@pytest.fixture(scope="module")
def long(clip: ClipMaker) -> Bitstream:
    return flashcodec.analyse_bitstream(clip("h264_long.mp4"))


def test_a_short_request_does_not_wait_for_a_long_one(stream: Bitstream, long: Bitstream, gate: Gate) -> None:
    with FlashCodec(num_threads=1) as codec:
        gate.occupy(codec)
        first = codec.add_decoding_request(long, range(0, long.num_frames, 20), SMALL)
        second = codec.add_decoding_request(stream, [149], SMALL)
        gate.open()
        order = [output.request for output in outputs_of(codec, 3)]
    assert order.index(second) < order.index(first)


def test_an_engine_leaves_a_long_request_for_a_short_one(clip: ClipMaker, stream: Bitstream) -> None:
    gate = Gate(clip("h264_long.mp4"))
    long = flashcodec.analyse_bitstream(gate)
    frames = range(0, long.num_frames, 10)
    (first_segment, *_) = long.plan(frames, engines=1).segments
    assert first_segment.last - first_segment.first > 20
    with FlashCodec(num_threads=1) as codec:
        gate.occupy_with(codec, long, frames)
        short = codec.add_decoding_request(stream, [149], SMALL)
        gate.open()
        order = [output.request for output in outputs_of(codec, 2)]
    assert order.index(short) <= 1
    assert len(order) == len(frames) + 1


def test_what_has_begun_is_finished_first(long: Bitstream, gate: Gate) -> None:
    frames = range(0, long.num_frames, 20)
    assert long.plan(frames).estimated_seconds > 0.6
    with FlashCodec(num_threads=1) as codec:
        gate.occupy(codec)
        first = codec.add_decoding_request(long, frames, SMALL)
        second = codec.add_decoding_request(long, frames, SMALL)
        gate.open()
        order = [output.request for output in outputs_of(codec, 3)]
    assert order[1:] == [first] * len(frames) + [second] * len(frames)


def test_short_requests_do_not_hold_up_a_long_one_for_ever(stream: Bitstream, long: Bitstream, gate: Gate) -> None:
    frames = range(0, long.num_frames // 4, 20)  # they may overtake it for a multiple of what it takes
    with FlashCodec(num_threads=1) as codec:
        gate.occupy(codec)
        first = codec.add_decoding_request(long, frames, SMALL)
        codec.add_decoding_request(stream, [149], SMALL)
        gate.open()
        left = len(frames)
        for _ in range(100_000):
            output = codec.get_decoding_output(TIMEOUT)
            assert output is not None
            left -= output.request == first
            if left == 0:
                break
            if output.request != first and output.done:  # there is always a short one
                codec.add_decoding_request(stream, [149], SMALL)
    assert left == 0


def test_outputs_that_nobody_takes_hold_up_nobody_else(stream: Bitstream) -> None:
    with FlashCodec(output_limit=1) as idle, FlashCodec() as busy:
        for _ in range(8):
            idle.add_decoding_request(stream, range(150))
        for _ in range(4):
            busy.add_decoding_request(stream, range(0, 150, 7))
        assert len(outputs_of(busy, 4)) == 4 * 22
        assert len(outputs_of(idle, 8)) == 8 * 150


@pytest.mark.parametrize("name", ["h264_bframes.mp4", "h264_opengop.ts", "mpeg2.mpg"])
def test_frames_are_right_after_pauses(clip: ClipMaker, name: str) -> None:
    stream = flashcodec.analyse_bitstream(clip(name))
    frames = range(0, stream.num_frames, 2)
    with FlashCodec(num_threads=2, output_limit=1) as codec:
        codec.add_decoding_request(stream, frames, RGBLayout())
        outputs = sorted(outputs_of(codec, 1), key=lambda output: output.first)
    expected = VideoDecoder(stream).get_frames_at(frames).data
    np.testing.assert_array_equal(
        np.concatenate([output.data for output in outputs if output.data is not None]), expected
    )


def test_engines_work_one_at_a_time_where_memory_allows_no_more(stream: Bitstream) -> None:
    with FlashCodec(num_threads=4, memory_limit=1) as codec:
        for _ in range(6):
            codec.add_decoding_request(stream, range(150), SMALL)
        outputs = outputs_of(codec, 6)
    spans = sorted((output.began, output.ended) for output in outputs)
    assert len(outputs) == 6 * 150
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(spans))


def test_a_hundred_queued_4k_videos_fit_into_memory(clip: ClipMaker) -> None:
    script = f"""
        import resource
        from flashcodec import FlashCodec, VideoDecoder, analyse_bitstream

        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

        data = open({str(clip("h264_4k.mp4"))!r}, "rb").read()
        before = peak()
        with FlashCodec(output_limit=64 << 20) as codec:
            for _ in range(100):
                codec.add_decoding_request(data, [0, 2])
            VideoDecoder(analyse_bitstream(data))[:4]
            taken = sum(codec.get_decoding_output(60).data.shape == (1, 3, 2160, 3840) for _ in range(200))
            assert taken == 200
        print(peak() - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=True)
    assert int(done.stdout) < 900, "MiB; all frames together take 4,750"


def test_one_decoder_serves_many_files_of_the_same_kind(clip: ClipMaker) -> None:
    names = ["h264_bframes.mp4", "h264_faststart.mp4", "h264_bframes.mp4", "h264_vfr.mp4"] * 3
    streams = [flashcodec.analyse_bitstream(clip(name)) for name in names]
    with FlashCodec(num_threads=1) as codec:
        requests = [codec.add_decoding_request(stream, [62, 40], RGBLayout(order="NHWC")) for stream in streams]
        outputs = {(output.request, output.first): output.data for output in outputs_of(codec, len(requests))}
    for request, stream in zip(requests, streams, strict=True):
        expected = VideoDecoder(stream, dimension_order="NHWC", num_threads=1).get_frames_at([62, 40]).data
        np.testing.assert_array_equal(outputs[request, 0], expected[:1])
        np.testing.assert_array_equal(outputs[request, 1], expected[1:])


def test_a_video_of_one_gop_is_decoded_by_all_engines(clip: ClipMaker) -> None:
    stream = flashcodec.analyse_bitstream(clip("h264_one_gop.mp4"))
    (segment,) = stream.plan([100, 149], engines=2).segments
    assert segment.wide
    alone = VideoDecoder(stream, num_threads=1).get_frames_at([0, 77, 100, 149])
    together = VideoDecoder(stream, num_threads=4).get_frames_at([0, 77, 100, 149])
    np.testing.assert_array_equal(together.data, alone.data)


def test_bad_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        FlashCodec(output_limit=0)
    with pytest.raises(ValueError, match="engines of its own"):
        FlashCodec(memory_limit=1 << 30)
    with pytest.raises(ValueError, match="max_frames must be positive"):
        flashcodec.Limits(max_frames=0)
