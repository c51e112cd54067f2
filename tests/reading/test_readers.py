"""Media are read in processes that are confined, end in bounded time and leave others alone."""

import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
from PIL import Image

import flashcodec
from flashcodec import RGBLayout
from unifiedserve.config import EngineConfig
from unifiedserve.messages.media import Source, VideoInfo
from unifiedserve.reading.jobs import ImageHead, ImagePixels, Setup, VideoHead
from unifiedserve.reading.readers import Cancellation, Readers, ReadHere
from unifiedserve.sandbox import missing

PIXELS = 300_000_000


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.of(EngineConfig(allowed_local_media_path=str(tmp_path)))


@pytest.fixture
def readers(setup: Setup) -> Iterator[Readers]:
    readers = Readers(setup)
    yield readers
    readers.close()


@pytest.fixture
def picture(tmp_path: Path) -> Source:
    pixels = np.random.default_rng(1).integers(0, 256, (30, 50, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    return Source(path=str(tmp_path / "picture.png"))


@pytest.fixture
def slow(tmp_path: Path) -> Source:
    """Takes seconds to decode, inside the library."""
    data = io.BytesIO()
    Image.new("RGB", (12_000, 12_000)).save(data, "JPEG", progressive=True)
    progressive = data.getvalue()
    scan = progressive.rindex(b"\xff\xda")
    (tmp_path / "slow.jpg").write_bytes(progressive[:scan] + progressive[scan:-2] * 60 + progressive[-2:])
    return Source(path=str(tmp_path / "slow.jpg"))


def processes_that_read() -> list[psutil.Process]:
    (nursery,) = (each for each in psutil.Process().children() if "unifiedserve.reading.nursery" in each.cmdline())
    return nursery.children()


def test_results_are_those_of_reading_here(
    readers: Readers, picture: Source, sample_clip: Path, tmp_path: Path
) -> None:
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(sample_clip.read_bytes())
    for job in (
        ImageHead(picture, PIXELS),
        ImagePixels(picture, RGBLayout(30, 50), PIXELS),
        VideoHead(Source(path=str(clip))),
    ):
        assert bytes(readers.read(job)) == bytes(ReadHere().read(job))
    assert msgspec.msgpack.decode(readers.read(VideoHead(Source(path=str(clip)))), type=VideoInfo).num_frames > 1
    assert len(processes_that_read()) == 1


def test_errors_are_those_of_reading_here(readers: Readers, picture: Source, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    for job in (
        ImageHead(Source(path=str(tmp_path / "text.png")), PIXELS),
        ImageHead(picture, 10),
        ImageHead(Source(path=str(tmp_path / "none.png")), PIXELS),
        VideoHead(picture),
    ):
        with pytest.raises(flashcodec.DecodeError) as here:
            ReadHere().read(job)
        with pytest.raises(type(here.value)) as there:
            readers.read(job)
        assert str(there.value) == str(here.value)


def test_what_is_not_wanted_any_more_ends_inside_the_library(readers: Readers, slow: Source, picture: Source) -> None:
    cancellation = Cancellation()
    errors: list[BaseException] = []

    def read() -> None:
        try:
            readers.read(ImagePixels(slow, RGBLayout(100, 100), PIXELS), cancellation)
        except flashcodec.DecodeError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    while not (found := processes_that_read()) or found[0].cpu_times().user < 0.3:
        os.sched_yield()
    assert np.frombuffer(readers.read(ImagePixels(picture, RGBLayout(30, 50), PIXELS)), np.uint8).size == 4500
    cancellation.cancel()
    thread.join()
    assert "nobody waits for it" in str(errors[0])
    psutil.wait_procs(found)
    with pytest.raises(flashcodec.SourceError, match="nobody waits"):
        readers.read(ImageHead(picture, PIXELS), cancellation)


def test_what_takes_too_long_ends_and_says_so(setup: Setup, slow: Source, picture: Source) -> None:
    readers = Readers(msgspec.structs.replace(setup, seconds=0.5))
    try:
        with pytest.raises(flashcodec.LimitError, match=r"takes more than 0\.5 s of processor time"):
            readers.read(ImagePixels(slow, RGBLayout(100, 100), PIXELS))
        assert readers.read(ImageHead(picture, PIXELS))
    finally:
        readers.close()


def test_what_takes_too_much_memory_is_refused(setup: Setup, slow: Source, picture: Source) -> None:
    readers = Readers(msgspec.structs.replace(setup, max_bytes=256 << 20))
    try:
        with pytest.raises((MemoryError, flashcodec.DecodeError)):
            readers.read(ImagePixels(slow, RGBLayout(100, 100), PIXELS))
        assert readers.read(ImageHead(picture, PIXELS))
    finally:
        readers.close()


@pytest.mark.skipif(bool(missing()), reason=f"the kernel cannot confine {missing()}")
def test_readers_are_confined(readers: Readers, picture: Source) -> None:
    assert readers.read(ImageHead(picture, PIXELS))
    (process,) = processes_that_read()
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    with pytest.raises(flashcodec.SourceError, match="Permission denied"):
        readers.read(ImageHead(Source(path="/etc/passwd"), PIXELS))


def test_all_processes_end_with_the_one_that_asks(setup: Setup, picture: Source) -> None:
    readers = Readers(setup)
    readers.read(ImageHead(picture, PIXELS))
    reading = processes_that_read()
    readers.close()
    psutil.wait_procs(reading)
