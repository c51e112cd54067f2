"""The asynchronous trio: everything asked for comes, once, right, and nothing after a cancel."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from flashcodec_clips import ClipMaker
from hypothesis import given, settings
from hypothesis import strategies as st

import flashcodec
from flashcodec import Bitstream, DecodingOutput, FlashCodec, PatchLayout, RGBLayout, VideoDecoder

TIMEOUT = 60.0
LAYOUT = PatchLayout(84, 112, patch_size=14, temporal_patch_size=2, merge_size=2)


@pytest.fixture(scope="module")
def stream(clip: ClipMaker) -> Bitstream:
    return flashcodec.analyse_bitstream(clip("h264_bframes.mp4"))


@pytest.fixture(scope="module")
def codec() -> Iterator[FlashCodec]:
    with FlashCodec(num_threads=3) as codec:
        yield codec


def collect(codec: FlashCodec, requests: set[int]) -> dict[int, list[DecodingOutput]]:
    outputs: dict[int, list[DecodingOutput]] = {request: [] for request in requests}
    left = set(requests)
    while left:
        output = codec.get_decoding_output(TIMEOUT)
        assert output is not None
        outputs[output.request].append(output)
        if output.done:
            left.remove(output.request)
    return outputs


def resized(stream: Bitstream, frames: list[int], height: int, width: int) -> npt.NDArray[np.uint8]:
    """[n, 3, height, width]; that the resize is right is tested elsewhere."""
    with FlashCodec(num_threads=1) as codec:
        request = codec.add_decoding_request(stream, frames, RGBLayout(height, width))
        outputs = sorted(collect(codec, {request})[request], key=lambda output: output.first)
    return np.concatenate([output.data for output in outputs if output.data is not None])


def qwen_patches(frames: npt.NDArray[np.uint8], layout: PatchLayout) -> npt.NDArray[np.uint8]:
    """The patch order of transformers' Qwen2-VL processors, on frames [n, 3, height, width]."""
    tp, p, m = layout.temporal_patch_size, layout.patch_size, layout.merge_size
    if len(frames) % tp:
        frames = np.concatenate([frames, np.repeat(frames[-1:], tp - len(frames) % tp, axis=0)])
    grid_h, grid_w = layout.height // p, layout.width // p
    split = frames.reshape(-1, tp, 3, grid_h // m, m, p, grid_w // m, m, p)
    return split.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(-1, 3 * tp * p * p)


@settings(max_examples=25)
@given(data=st.data())
def test_patches_are_those_of_the_frames_in_the_order_asked(
    stream: Bitstream, codec: FlashCodec, data: st.DataObject
) -> None:
    frames = data.draw(st.lists(st.integers(0, stream.num_frames - 1), min_size=1, max_size=12))
    tp = data.draw(st.sampled_from([1, 2, 3]))
    layout = PatchLayout(84, 112, 14, tp, data.draw(st.sampled_from([1, 2])))
    request = codec.add_decoding_request(stream, frames, layout)
    outputs = collect(codec, {request})[request]

    groups = -(-len(frames) // tp)
    assert sorted(output.first_group for output in outputs) == list(range(groups))
    rows = np.zeros(layout.group_shape(groups), np.uint8)
    for output in outputs:
        assert output.first == output.first_group * tp
        assert output.count == min(tp, len(frames) - output.first)
        assert output.data is not None
        assert output.data.shape == layout.group_shape(1)
        begin = output.first_group * layout.rows_per_group
        rows[begin : begin + len(output.data)] = output.data
    assert [output.done for output in outputs] == [False] * (len(outputs) - 1) + [True]
    np.testing.assert_array_equal(rows, qwen_patches(resized(stream, frames, 84, 112), layout))


def test_requests_in_flight_do_not_mix(stream: Bitstream, clip: ClipMaker) -> None:
    others = [stream, flashcodec.analyse_bitstream(clip("h264_opengop.mp4"))]
    wanted = {}
    with FlashCodec(num_threads=2) as codec:
        for number in range(24):
            source = others[number % 2]
            frames = list(range(number, source.num_frames, 9))
            wanted[codec.add_decoding_request(source, frames, LAYOUT)] = (source, frames)
        outputs = collect(codec, set(wanted))
        assert codec.get_decoding_output(0) is None
    for request, (source, frames) in wanted.items():
        assert sorted(output.first for output in outputs[request]) == list(range(0, len(frames), 2))
        last = max(outputs[request], key=lambda output: output.first)
        expected = qwen_patches(resized(source, frames[last.first :], 84, 112), LAYOUT)
        np.testing.assert_array_equal(last.data, expected)


def test_rgb_of_native_size_is_the_default(stream: Bitstream, codec: FlashCodec) -> None:
    request = codec.add_decoding_request(stream, [7])
    (output,) = collect(codec, {request})[request]
    np.testing.assert_array_equal(output.data, VideoDecoder(stream)[7:8])
    request = codec.add_decoding_request(stream, [7], RGBLayout(order="NHWC"))
    (output,) = collect(codec, {request})[request]
    np.testing.assert_array_equal(output.data, VideoDecoder(stream, dimension_order="NHWC")[7:8])


@settings(max_examples=15)
@given(cancelled=st.sets(st.integers(0, 7)), taken_before=st.integers(0, 20))
def test_nothing_comes_after_a_cancel(stream: Bitstream, cancelled: set[int], taken_before: int) -> None:
    with FlashCodec(num_threads=2) as codec:
        requests = [codec.add_decoding_request(stream, range(0, 150, 5), LAYOUT) for _ in range(8)]
        done = set()
        for _ in range(taken_before):
            output = codec.get_decoding_output(TIMEOUT)
            assert output is not None
            done |= {output.request} if output.done else set()
        dropped = {requests[number] for number in cancelled}
        for request in dropped:
            codec.cancel(request)
            codec.cancel(request)
        left = set(requests) - dropped - done
        while left:
            output = codec.get_decoding_output(TIMEOUT)
            assert output is not None
            assert output.request not in dropped
            left -= {output.request} if output.done else set()
        assert codec.get_decoding_output(0) is None


def test_cancelling_from_another_thread(stream: Bitstream) -> None:
    with FlashCodec(num_threads=2) as codec:
        requests = [codec.add_decoding_request(stream, range(150), LAYOUT) for _ in range(20)]
        last = codec.add_decoding_request(stream, [3], LAYOUT)
        canceller = threading.Thread(target=lambda: [codec.cancel(request) for request in requests])
        canceller.start()
        while True:
            output = codec.get_decoding_output(TIMEOUT)
            if output is not None and output.request == last:
                break
        canceller.join()


def test_bad_requests_are_refused_at_once(stream: Bitstream, codec: FlashCodec) -> None:
    with pytest.raises(IndexError, match="frame 150 is outside of the video's 150 frames"):
        codec.add_decoding_request(stream, [0, 150], LAYOUT)
    with pytest.raises(IndexError):
        codec.add_decoding_request(stream, [-1], LAYOUT)
    with pytest.raises(ValueError, match="no frames"):
        codec.add_decoding_request(stream, [], LAYOUT)
    with pytest.raises(TypeError, match="integers"):
        codec.add_decoding_request(stream, [0.5], LAYOUT)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="multiples of patch_size"):
        PatchLayout(100, 100)
    with pytest.raises(flashcodec.DecodeError):
        codec.add_decoding_request("/nowhere.mp4", [0], LAYOUT)
    assert codec.get_decoding_output(0) is None


def test_an_analysis_knows_the_number_of_its_request(clip: ClipMaker, codec: FlashCodec) -> None:
    path = clip("h264_bframes.mp4")
    first, second = codec.analyse_bitstream(path), codec.analyse_bitstream(path)
    assert first.key_id != second.key_id
    assert first.devices == ("cpu",)
    assert second.bitstream.metadata.num_frames == 150
    between = codec.add_decoding_request(first.bitstream, [3], LAYOUT)
    requests = [codec.add_decoding_request(analysis, [5, 6], LAYOUT) for analysis in (second, first)]
    assert requests == [second.key_id, first.key_id]
    assert all(len(outputs) == 1 for outputs in collect(codec, {between, *requests}).values())


def test_an_analysis_is_for_one_request_of_its_instance(stream: Bitstream, clip: ClipMaker, codec: FlashCodec) -> None:
    analysis = codec.analyse_bitstream(clip("h264_bframes.mp4"))
    with pytest.raises(IndexError):
        codec.add_decoding_request(analysis, [150], LAYOUT)
    collect(codec, {codec.add_decoding_request(analysis, [0], LAYOUT)})
    with pytest.raises(ValueError, match="has had its request"):
        codec.add_decoding_request(analysis, [0], LAYOUT)
    with FlashCodec(num_threads=1) as other, pytest.raises(ValueError, match="another instance"):
        other.add_decoding_request(codec.analyse_bitstream(clip("h264_bframes.mp4")), [0], LAYOUT)


def test_a_failure_ends_its_request_only(stream: Bitstream, clip: ClipMaker, codec: FlashCodec) -> None:
    data = clip("h264_faststart.mp4").read_bytes()
    broken = flashcodec.analyse_bitstream(data[: len(data) * 6 // 10])
    assert broken.num_frames == 150
    good = codec.add_decoding_request(stream, range(0, 150, 10), LAYOUT)
    bad = codec.add_decoding_request(broken, [0, 1, 148, 149], LAYOUT)
    outputs = collect(codec, {good, bad})
    assert sum(output.count for output in outputs[good]) == 15
    error = outputs[bad][-1].error
    assert error is not None
    assert error.stream == 0
    assert "truncated" in error.reason
    assert outputs[bad][-1].data is None


def test_a_timeout_of_nothing_returns_at_once(codec: FlashCodec) -> None:
    assert codec.get_decoding_output(0) is None
    assert codec.get_decoding_output(0.01) is None


def test_waiting_can_be_interrupted() -> None:
    script = """
        import flashcodec, os, signal, threading
        codec = flashcodec.FlashCodec(num_threads=1)
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            codec.get_decoding_output()
        except KeyboardInterrupt:
            print("interrupted")
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    assert subprocess.run(command, capture_output=True, timeout=300, check=True).stdout == b"interrupted\n"


def test_leaving_with_work_in_flight(clip: ClipMaker) -> None:
    """The interpreter ends cleanly, also while engines use Python objects."""
    script = f"""
        import flashcodec
        data = open({str(clip("h264_bframes.mp4"))!r}, "rb").read()
        for _ in range(20):
            stream = flashcodec.analyse_bitstream(open({str(clip("h264_bframes.mp4"))!r}, "rb"))
            flashcodec.add_decoding_request(stream, range(150))
        own = flashcodec.FlashCodec(num_threads=2)
        own.add_decoding_request(stream, range(150))
        bytes_owner = flashcodec.FlashCodec(num_threads=2)
        bytes_owner.add_decoding_request(data, [0])
        bytes_owner.get_decoding_output()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, b"")


def _decode_in_child(path: str, expected: bytes) -> None:
    os._exit(0 if VideoDecoder(path)[11].tobytes() == expected else 1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_decodes_with_engines_of_its_own(clip: ClipMaker) -> None:
    path = str(clip("h264_bframes.mp4"))
    expected = VideoDecoder(path)[11].tobytes()
    child = multiprocessing.get_context("fork").Process(target=_decode_in_child, args=(path, expected))
    child.start()
    child.join(TIMEOUT)
    if child.is_alive():
        os.kill(child.pid or 0, signal.SIGKILL)
    assert child.exitcode == 0


def test_a_closed_codec_takes_no_requests(stream: Bitstream) -> None:
    codec = FlashCodec(num_threads=1)
    codec.add_decoding_request(stream, range(150), LAYOUT)
    codec.close()
    codec.close()
    with pytest.raises(RuntimeError, match="closed"):
        codec.add_decoding_request(stream, [0], LAYOUT)
    assert codec.get_decoding_output(0) is None
