"""What frames may come from: names that are no text, arrays, and files that are none."""

import fcntl
import io
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flashcodec.image import decode_image, image_size
from flashcodec_clips import ClipMaker

import flashcodec
from flashcodec import DecodeError, FlashCodec, SourceError, VideoDecoder

NAME = b"caf\xe9 \xff.mp4"  # Latin-1


@dataclass
class BytesPath:
    """A path that is bytes, as os.scandir(b"...") gives them."""

    path: bytes

    def __fspath__(self) -> bytes:
        return self.path


@pytest.fixture
def strange(clip: ClipMaker, tmp_path: Path) -> bytes:
    """Return the path of a video whose name is not UTF-8."""
    path = os.fsencode(tmp_path) + b"/" + NAME
    try:
        with open(path, "wb") as file:
            file.write(clip("h264_tagged.mp4").read_bytes())
    except OSError:
        pytest.skip("this file system has only names that are text")
    return path


def request(source: Any) -> object:
    with FlashCodec() as codec:
        codec.add_decoding_request(source, [0])
        return codec.get_decoding_output()


def torch_decoder(source: Any) -> object:
    return pytest.importorskip("flashcodec.torch").VideoDecoder(source)


VIDEO_ENTRIES: dict[str, Callable[[Any], object]] = {
    "analyse_bitstream": flashcodec.analyse_bitstream,
    "VideoDecoder": VideoDecoder,
    "sample": lambda source: flashcodec.sample(source, num_frames=1),
    "yuv_frames_at": lambda source: flashcodec.yuv_frames_at(source, [0]),
    "add_decoding_request": request,
    "torch": torch_decoder,
}
IMAGE_ENTRIES: dict[str, Callable[[Any], object]] = {"image_size": image_size, "decode_image": decode_image}
ENTRIES = VIDEO_ENTRIES | IMAGE_ENTRIES


@pytest.mark.parametrize("entry", VIDEO_ENTRIES)
def test_names_that_are_not_utf8(strange: bytes, entry: str) -> None:
    for path in (os.fsdecode(strange), BytesPath(strange), Path(os.fsdecode(strange))):
        assert VIDEO_ENTRIES[entry](path) is not None


def test_a_decoder_on_such_a_name_can_be_pickled(strange: bytes) -> None:
    decoder = VideoDecoder(BytesPath(strange))
    copy = pickle.loads(pickle.dumps(decoder))
    np.testing.assert_array_equal(copy[3], decoder[3])


def test_images_whose_names_are_not_utf8(tmp_path: Path, strange: bytes) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow decodes images")
    for file_format in ("JPEG", "PNG"):
        path = strange + file_format.encode()
        with open(path, "wb") as file:
            image.new("RGB", (12, 8), (200, 0, 0)).save(file, file_format)
        for source in (os.fsdecode(path), BytesPath(path)):
            assert image_size(source) == (12, 8)
            np.testing.assert_allclose(decode_image(source), np.full((8, 12, 3), [200, 0, 0]), atol=2)


@pytest.mark.parametrize("entry", ENTRIES)
def test_errors_name_such_files_printably(tmp_path: Path, entry: str) -> None:
    path = os.fsencode(tmp_path) + b"/missing \xff.mp4"
    with pytest.raises(SourceError, match="No such file") as caught:
        ENTRIES[entry](os.fsdecode(path))
    assert "missing \\udcff.mp4" in str(caught.value)
    print(caught.value.source, caught.value)


def test_what_is_wrong_inside_of_such_a_file_is_printable(strange: bytes) -> None:
    with open(strange, "r+b") as file:
        file.truncate(100)
    for source in (os.fsdecode(strange), io.FileIO(os.fsdecode(strange))):
        with pytest.raises(DecodeError) as caught:
            VideoDecoder(source)
        str(caught.value).encode()


@pytest.mark.parametrize("command", ["probe", "plan", "sample"])
def test_the_command_line_takes_such_names(strange: bytes, tmp_path: Path, command: str) -> None:
    for module in ("PIL", "rich", "typer"):
        pytest.importorskip(module, reason="the command line needs it")
    folder = tmp_path / "frames"
    options = ["--frames", "1", "-o", f"{folder}/"] if command == "sample" else []
    arguments = [sys.executable, "-m", "flashcodec.cli", command, strange, *options]
    done = subprocess.run(arguments, capture_output=True, check=False, env=os.environ | {"PYTHONUTF8": "1"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert command == "sample" or b"caf\\udce9" in done.stdout
    assert command != "sample" or len(list(folder.iterdir())) == 1


def test_a_name_with_a_null_character_is_no_file(clip: ClipMaker) -> None:
    with pytest.raises(SourceError, match="null"):
        VideoDecoder(f"{clip('h264_tagged.mp4')}\0.mp4")


def test_arrays_of_bytes(clip: ClipMaker) -> None:
    path = clip("h264_tagged.mp4")
    data = np.fromfile(path, np.uint8)
    expected = VideoDecoder(path)[7]
    read_only = data.copy()
    read_only.flags.writeable = False
    for source in (data, read_only, np.memmap(path, np.uint8, "r"), memoryview(data)):
        np.testing.assert_array_equal(VideoDecoder(source)[7], expected)
    assert flashcodec.sample(data, num_frames=2).data.shape[0] == 2
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(VideoDecoder(data)))[7], expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.astype(np.float32), "1-d of uint8, got 1-d of float32"),
        (lambda data: data.view(np.int8), "1-d of uint8, got 1-d of int8"),
        (lambda data: data[None], "1-d of uint8, got 2-d of uint8"),
        (lambda data: data[::2], "contiguous"),
        (lambda data: memoryview(data)[::-1], "contiguous"),
    ],
)
def test_other_arrays_are_refused(change: Callable[[Any], Any], message: str) -> None:
    source = change(np.zeros(1000, np.uint8))
    for entry in (flashcodec.analyse_bitstream, decode_image):
        with pytest.raises(ValueError, match=message):
            entry(source)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, entry: str) -> None:
    """Nobody writes to the pipe: an open that waits for a writer does not end."""
    pipe, listening = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(listening))
        kinds = {pipe: "a named pipe", listening: "a socket", tmp_path: "a directory", Path("/dev/zero"): "a device"}
        for path, kind in kinds.items():
            with pytest.raises(SourceError, match=f"{kind}, not a regular file"):
                ENTRIES[entry](path)


@pytest.mark.parametrize(("entry", "name"), [("analyse_bitstream", "h264_tagged.mp4"), ("image_size", "animated.gif")])
def test_other_threads_run_while_a_file_is_opened(clip: ClipMaker, tmp_path: Path, entry: str, name: str) -> None:
    """Opening waits until the holder of a lease on the file gives it back, which needs the interpreter here."""
    path = tmp_path / name
    path.write_bytes(clip(name).read_bytes())
    descriptor = os.open(path, os.O_RDWR)
    openings = []

    def give_back(*_: object) -> None:
        openings.append(sum(os.path.samestat(os.fstat(descriptor), found) for found in open_files()))
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    before = signal.signal(signal.SIGIO, give_back)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        pytest.skip("this file system has no leases")
    else:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(ENTRIES[entry], path).result()
    finally:
        signal.signal(signal.SIGIO, before)
        os.close(descriptor)
    assert openings == [1]


def open_files() -> Iterator[os.stat_result]:
    """Yield what the descriptors of this process are."""
    for entry in os.scandir("/proc/self/fd"):
        with suppress(OSError):  # closed by now
            yield entry.stat()
