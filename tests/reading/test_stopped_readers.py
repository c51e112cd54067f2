"""A reader that a signal stops is ended, and another one reads: nobody waits for it for ever."""

import os
import threading
from contextlib import closing

import psutil
import pytest
from reading_processes import PIXELS, processes_that_read

import flashcodec
from flashcodec import RGBLayout
from unifiedserve.messages.media import Source
from unifiedserve.reading.jobs import ImagePixels, Setup
from unifiedserve.reading.keeper import LentNursery, Nursery
from unifiedserve.reading.readers import Cancellation, Readers, ReadHere

LAYOUT = RGBLayout(30, 50)


def is_read(readers: Readers, picture: Source) -> bool:
    job = ImagePixels(picture, LAYOUT, PIXELS)
    return bytes(readers.read(job)) == bytes(ReadHere().read(job))


def stop(*processes: psutil.Process) -> None:
    """Stop processes; returns when they are."""
    for process in processes:
        process.suspend()
    while any(process.status() != psutil.STATUS_STOPPED for process in processes):
        os.sched_yield()


@pytest.mark.parametrize("with_nursery", [False, True])
def test_another_one_reads(nursery: Nursery, readers: Readers, picture: Source, with_nursery: bool) -> None:
    assert is_read(readers, picture)
    (stopped,) = processes_that_read(nursery)
    stop(stopped, *([psutil.Process(nursery.start())] if with_nursery else []))
    assert is_read(readers, picture)
    psutil.wait_procs([stopped])
    (other,) = processes_that_read(nursery)
    assert other != stopped


def test_another_one_reads_for_who_borrows_them(nursery: Nursery, setup: Setup, picture: Source) -> None:
    with nursery.lend() as lender, closing(Readers(LentNursery(lender), setup)) as readers:
        assert is_read(readers, picture)
        (stopped,) = processes_that_read(nursery)
        stop(stopped)
        assert is_read(readers, picture)
        psutil.wait_procs([stopped])


def test_who_does_not_want_it_any_more_is_told_at_once_and_it_is_ended(
    nursery: Nursery, readers: Readers, slow: Source
) -> None:
    cancellation, errors = Cancellation(), list[Exception]()

    def read() -> None:
        try:
            readers.read(ImagePixels(slow, RGBLayout(100, 100), PIXELS), cancellation)
        except flashcodec.SourceError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    while not (found := processes_that_read(nursery)) or found[0].cpu_times().user < 0.1:
        os.sched_yield()
    stop(*found)
    cancellation.cancel()
    thread.join()
    assert "nobody waits" in str(errors[0])
    psutil.wait_procs(found)


def test_another_one_reads_if_it_is_killed(nursery: Nursery, readers: Readers, picture: Source) -> None:
    assert is_read(readers, picture)
    (killed,) = processes_that_read(nursery)
    stop(killed)
    read: list[bool] = []
    thread = threading.Thread(target=lambda: read.append(is_read(readers, picture)))
    thread.start()
    while readers._idle:  # it is not asked yet
        os.sched_yield()
    killed.kill()
    thread.join()
    assert read == [True]


def test_stopped_ones_end_with_the_nursery(setup: Setup, picture: Source) -> None:
    nursery = Nursery(setup)
    readers = Readers(nursery, setup)
    assert is_read(readers, picture)
    found = processes_that_read(nursery)
    stop(*found)
    readers.close()
    nursery.close()
    psutil.wait_procs(found)
