"""Media are read in processes that are confined, end in bounded time and leave others alone."""

import os
import threading
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
from reading_processes import PIXELS, processes_that_read

import flashcodec
from flashcodec import RGBLayout
from unifiedserve.messages.media import Source, VideoInfo
from unifiedserve.reading.jobs import ImageHead, ImagePixels, Setup, VideoHead
from unifiedserve.reading.keeper import Nursery
from unifiedserve.reading.readers import Cancellation, Readers, ReadHere
from unifiedserve.reading.work import pixels_of
from unifiedserve.sandbox import missing


def test_results_are_those_of_reading_here(
    nursery: Nursery, readers: Readers, picture: Source, sample_clip: Path, tmp_path: Path
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
    assert len(processes_that_read(nursery)) == 1


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


def test_what_is_not_wanted_any_more_ends_inside_the_library(
    nursery: Nursery, readers: Readers, slow: Source, picture: Source
) -> None:
    cancellation = Cancellation()
    errors: list[BaseException] = []

    def read() -> None:
        try:
            readers.read(ImagePixels(slow, RGBLayout(100, 100), PIXELS), cancellation)
        except flashcodec.DecodeError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    while not (found := processes_that_read(nursery)) or found[0].cpu_times().user < 0.3:
        os.sched_yield()
    assert np.frombuffer(readers.read(ImagePixels(picture, RGBLayout(30, 50), PIXELS)), np.uint8).size == 4500
    cancellation.cancel()
    thread.join()
    assert "nobody waits for it" in str(errors[0])
    psutil.wait_procs(found)
    with pytest.raises(flashcodec.SourceError, match="nobody waits"):
        readers.read(ImageHead(picture, PIXELS), cancellation)


def test_what_takes_too_long_ends_and_says_so(setup: Setup, slow: Source, picture: Source) -> None:
    setup = msgspec.structs.replace(setup, seconds=0.4, megapixel_seconds=0.001)
    with closing(Nursery(setup)) as nursery, closing(Readers(nursery, setup)) as readers:
        with pytest.raises(flashcodec.LimitError, match=r"more than 0\.4 s and 0\.001 s a megapixel of processor"):
            readers.read(ImagePixels(slow, RGBLayout(100, 100), PIXELS))
        assert readers.read(ImageHead(picture, PIXELS))


def test_what_takes_too_much_memory_is_refused(setup: Setup, slow: Source, picture: Source) -> None:
    setup = msgspec.structs.replace(setup, max_bytes=256 << 20)
    with closing(Nursery(setup)) as nursery, closing(Readers(nursery, setup)) as readers:
        with pytest.raises((MemoryError, flashcodec.DecodeError)):
            readers.read(ImagePixels(slow, RGBLayout(100, 100), PIXELS))
        assert readers.read(ImageHead(picture, PIXELS))


@pytest.mark.skipif(bool(missing()), reason=f"the kernel cannot confine {missing()}")
def test_readers_are_confined(nursery: Nursery, readers: Readers, picture: Source) -> None:
    assert readers.read(ImageHead(picture, PIXELS))
    (process,) = processes_that_read(nursery)
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    with pytest.raises(flashcodec.SourceError, match="Permission denied"):
        readers.read(ImageHead(Source(path="/etc/passwd"), PIXELS))


def test_all_processes_end_with_the_one_that_asks(setup: Setup, picture: Source) -> None:
    nursery = Nursery(setup)
    readers = Readers(nursery, setup)
    readers.read(ImageHead(picture, PIXELS))
    processes = [psutil.Process(nursery.start()), *processes_that_read(nursery)]
    readers.close()
    nursery.close()
    psutil.wait_procs(processes)


def test_the_time_for_an_image_is_that_of_its_own_pixels(setup: Setup, slow: Source, picture: Source) -> None:
    assert setup.seconds_for(ImageHead(slow, PIXELS)) == 1.0
    assert pixels_of(ImagePixels(picture, RGBLayout(3, 5), PIXELS)) == 1500
    assert setup.seconds_for(ImagePixels(picture, RGBLayout(3, 5), PIXELS), 50_000_000) == pytest.approx(15.0)
