"""Decoders in other processes, and what is left behind when they are closed."""

import io
import json
import multiprocessing
import os
import pickle
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import left_behind
import numpy as np
import pytest
from flashcodec_clips import ClipMaker

from flashcodec import Bitstream, FlashCodec, VideoDecoder, analyse_bitstream

TIMEOUT = 120.0


@pytest.fixture(scope="module")
def path(clip: ClipMaker) -> Path:
    return clip("h264_opengop.mp4")


@pytest.mark.parametrize("kind", ["path", "str", "bytes", "bytearray", "memoryview"])
def test_a_pickled_decoder_opens_its_source_anew(path: Path, kind: str) -> None:
    data = path.read_bytes()
    sources: dict[str, Any] = {
        "path": path,
        "str": str(path),
        "bytes": data,
        "bytearray": bytearray(data),
        "memoryview": memoryview(data),
    }
    options: dict[str, Any] = {"size": (24, 40), "dimension_order": "NHWC", "num_threads": 2, "on_error": "nearest"}
    decoder = VideoDecoder(sources[kind], **options)
    expected = decoder.get_frames_at([50, 3])
    copy = pickle.loads(pickle.dumps(decoder))
    decoder.close()
    batch = copy.get_frames_at([50, 3])
    assert type(copy) is VideoDecoder
    assert copy.on_error == "nearest"
    np.testing.assert_array_equal(batch.data, expected.data)


def test_a_recipe_is_small(path: Path) -> None:
    assert len(pickle.dumps(VideoDecoder(path))) < 1000


def test_a_recipe_for_a_file_that_is_gone(tmp_path: Path, path: Path) -> None:
    copy = tmp_path / "copy.mp4"
    copy.write_bytes(path.read_bytes())
    recipe = pickle.dumps(VideoDecoder(copy))
    copy.unlink()
    with pytest.raises(RuntimeError, match="No such file"):
        pickle.loads(recipe)


def test_what_cannot_be_opened_again_cannot_be_pickled(path: Path) -> None:
    with path.open("rb") as file:
        for source in (io.BytesIO(path.read_bytes()), file, analyse_bitstream(path)):
            with pytest.raises(TypeError, match="path or bytes"):
                pickle.dumps(VideoDecoder(source))


def _compare(decoder: VideoDecoder, expected: bytes, done: Any) -> None:
    done.put([decoder.get_frames_at([70, 3, 41]).data.tobytes() == expected for _ in range(3)])


def run_in_process(method: str, target: Callable[..., None], *arguments: Any) -> Any:
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    process = context.Process(target=target, args=(*arguments, results), daemon=True)
    process.start()
    result = results.get(timeout=TIMEOUT)
    process.join(TIMEOUT)
    assert process.exitcode == 0
    return result


def test_a_decoder_goes_to_a_spawned_process(path: Path) -> None:
    decoder = VideoDecoder(path)
    expected = decoder.get_frames_at([70, 3, 41]).data.tobytes()
    assert run_in_process("spawn", _compare, decoder, expected) == [True] * 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("kind", ["path", "bytes", "bitstream"])
def test_a_decoder_works_on_both_sides_of_a_fork(path: Path, kind: str, num_threads: int) -> None:
    source: Any = {"path": path, "bytes": path.read_bytes(), "bitstream": analyse_bitstream(path)}[kind]
    decoder = VideoDecoder(source, num_threads=num_threads)
    expected = decoder.get_frames_at([70, 3, 41]).data.tobytes()
    for _ in range(3):
        assert run_in_process("fork", _compare, decoder, expected) == [True] * 3
        assert decoder.get_frames_at([70, 3, 41]).data.tobytes() == expected
    decoder.close()


@pytest.mark.parametrize("opened", [FlashCodec, lambda **options: VideoDecoder(b"nothing", **options)])
@pytest.mark.parametrize(
    ("threads", "error"), [(-1, ValueError), (2**40, ValueError), (1025, ValueError), ("two", TypeError)]
)
def test_numbers_of_threads_that_cannot_be(opened: Callable[..., Any], threads: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="num_threads must"):
        opened(num_threads=threads)


class Gated(io.BytesIO):
    """A file whose reads wait while its gate is closed."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.gate = threading.Event()
        self.gate.set()

    def read(self, size: int | None = -1, /) -> bytes:
        self.gate.wait()
        return super().read(size)


def _take(codec: FlashCodec, done: Any) -> None:
    try:
        codec.get_decoding_output()
    except RuntimeError as error:
        done.put(str(error))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_requests_stay_with_the_process_that_began_them(path: Path) -> None:
    """Their threads are not in a forked one, which would wait for ever."""
    file = Gated(path.read_bytes())
    stream = analyse_bitstream(file)
    with FlashCodec() as codec:
        file.gate.clear()
        codec.add_decoding_request(stream, [3])
        assert "belongs to the parent process" in run_in_process("fork", _take, codec)
        file.gate.set()
        output = codec.get_decoding_output()
        assert output is not None
        assert output.done


class Frames:
    """A data set whose items are frames of one decoder."""

    def __init__(self, path: Path) -> None:
        from flashcodec.torch import VideoDecoder as TensorDecoder

        self.decoder = TensorDecoder(path)

    def __len__(self) -> int:
        return len(self.decoder)

    def __getitem__(self, index: int) -> Any:
        return self.decoder[index]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader(path: Path, method: str) -> None:
    data = pytest.importorskip("torch.utils.data")
    frames = Frames(path)
    expected = frames.decoder.get_all_frames().data.numpy()
    loader = data.DataLoader(frames, batch_size=9, num_workers=2, multiprocessing_context=method, timeout=TIMEOUT)
    np.testing.assert_array_equal(np.concatenate([batch.numpy() for batch in loader]), expected)


def test_threads_share_a_decoder(path: Path) -> None:
    decoder = VideoDecoder(path)
    expected = decoder.get_all_frames().data
    with ThreadPoolExecutor(4) as pool:
        for index, frame in zip(range(96), pool.map(lambda i: decoder[i], range(96)), strict=True):
            np.testing.assert_array_equal(frame, expected[index])


def test_a_decoder_may_be_closed_while_another_thread_decodes(path: Path) -> None:
    decoder = VideoDecoder(path, num_threads=1)
    begun, found = threading.Event(), []

    def read() -> None:
        found.append(len(decoder.get_frames_at(list(range(100)), progress=lambda done, total: begun.set())))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert begun.wait(TIMEOUT)
    decoder.close()
    reader.join(TIMEOUT)
    assert found == [100]


KINDS, WAYS = ("path", "bytes", "file", "own threads"), ("closed", "forgotten", "only opened", "in mid-stream")
ALWAYS = {*((kind, "closed") for kind in KINDS), *(("path", how) for how in WAYS), ("own threads", "in mid-stream")}


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        pytest.param(kind, how, marks=[] if (kind, how) in ALWAYS else [pytest.mark.long])
        for kind in KINDS
        for how in WAYS
    ],
)
def test_nothing_is_left_behind(path: Path, kind: str, how: str) -> None:
    command = [sys.executable, str(Path(left_behind.__file__)), str(path), kind, how]
    output = subprocess.run(command, env={**os.environ, "MALLOC_ARENA_MAX": "1"}, stdout=subprocess.PIPE, check=True)
    *states, last = json.loads(output.stdout)
    growth = [after["memory"] - before["memory"] for before, after in pairwise(states)]
    assert statistics.median(growth) < left_behind.USES * 4096, growth
    assert last["files"] <= states[0]["files"]
    assert last["threads"] <= states[0]["threads"]


def wait_until(condition: Callable[[], bool]) -> None:
    """Engines keep the last stream for a second, in case that more is wanted of it."""
    patience = threading.Event()
    for _ in range(int(TIMEOUT * 20)):
        if condition():
            return
        patience.wait(0.05)
    raise AssertionError("it does not become true")


def test_a_bitstream_is_closed_with_its_last_decoder(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.mp4"  # which no other test of this process has opened
    copy.write_bytes(path.read_bytes())
    stream: Bitstream | None = analyse_bitstream(copy)
    assert stream is not None
    with VideoDecoder(stream) as decoder:
        decoder.get_frame_at(3)
    assert VideoDecoder(stream).get_frame_at(3).pts_seconds == 0.12  # not closed with the first one
    opened = f"{copy.resolve()}"

    def is_open() -> bool:
        return any(os.path.realpath(f"/proc/self/fd/{fd}") == opened for fd in os.listdir("/proc/self/fd"))

    assert is_open()
    del stream, decoder
    wait_until(lambda: not is_open())
