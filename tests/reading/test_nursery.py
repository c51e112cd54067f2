"""A nursery that dies or is stopped is replaced: media are read on, and nothing is left of it."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psutil
import pytest
from reading_processes import PIXELS, processes_that_read

import flashcodec
from flashcodec import RGBLayout
from unifiedserve.messages.media import Source
from unifiedserve.reading.jobs import ImagePixels, Setup
from unifiedserve.reading.keeper import LentNursery, Nursery
from unifiedserve.reading.readers import Cancellation, Readers, ReadHere

SIGNALS = [signal.SIGKILL, signal.SIGSTOP]
LAYOUT = RGBLayout(30, 50)

Harm = Callable[[psutil.Process], None]


@pytest.fixture(params=SIGNALS, ids=lambda number: number.name)
def harm(request: pytest.FixtureRequest) -> Harm:
    """Ends or stops a process; returns when that is done."""

    def send(process: psutil.Process) -> None:
        process.send_signal(request.param)
        while process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED):
            os.sched_yield()

    return send


def held() -> tuple[int, int]:
    """What this process holds: sockets of the kind that nurseries have, and children."""
    sockets = [each for each in psutil.Process().net_connections("unix") if each.type == socket.SOCK_SEQPACKET]
    return len(sockets), len(psutil.Process().children())


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    before, threads = held(), set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - threads:  # which notice by themselves that a borrower has gone
        thread.join()
    assert held() == before


@pytest.fixture
def nursery(nothing_is_left: None, nursery: Nursery) -> Nursery:
    return nursery


def is_read(readers: Readers, picture: Source) -> bool:
    job = ImagePixels(picture, LAYOUT, PIXELS)
    return bytes(readers.read(job)) == bytes(ReadHere().read(job))


@contextmanager
def reading(nursery: Nursery, readers: Readers, slow: Source) -> Iterator[psutil.Process]:
    """Have a process read until the end of the block, when it is not wanted any more and ends."""
    cancellation, job = Cancellation(), ImagePixels(slow, RGBLayout(100, 100), PIXELS)

    def read() -> None:
        with pytest.raises(flashcodec.SourceError, match="nobody waits"):
            readers.read(job, cancellation)

    thread = threading.Thread(target=read)
    thread.start()
    while not (found := processes_that_read(nursery)) or found[0].cpu_times().user < 0.1:
        os.sched_yield()
    yield found[0]
    assert found[0].is_running()
    cancellation.cancel()
    thread.join()
    psutil.wait_procs(found)


def test_there_is_none_until_it_is_wanted(nursery: Nursery, readers: Readers, picture: Source) -> None:
    before = psutil.Process().children()
    assert is_read(readers, picture)
    (process,) = set(psutil.Process().children()) - set(before)
    assert nursery.start() == process.pid


def test_one_can_be_started_in_advance(nursery: Nursery, readers: Readers, picture: Source) -> None:
    before = psutil.Process().children()
    nursery.start_in(0)
    while not (started := set(psutil.Process().children()) - set(before)):
        os.sched_yield()
    assert is_read(readers, picture)
    assert set(psutil.Process().children()) - set(before) == started


def test_a_start_that_is_to_come_ends_with_it(setup: Setup, nothing_is_left: None) -> None:
    nursery = Nursery(setup)
    nursery.start_in(1000)
    nursery.close()
    with pytest.raises(RuntimeError):
        nursery.start()


def test_streams_take_the_cores_from_those_that_read(nursery: Nursery, readers: Readers, picture: Source) -> None:
    assert is_read(readers, picture)
    (reader,) = processes_that_read(nursery)
    assert reader.nice() > psutil.Process().nice()


def test_one_that_has_forked_none_is_replaced(nursery: Nursery, readers: Readers, picture: Source, harm: Harm) -> None:
    first = psutil.Process(nursery.start())
    harm(first)
    assert is_read(readers, picture)
    assert nursery.start() != first.pid
    assert not first.is_running()


def test_an_image_that_is_being_read_is_read_on_and_the_next_one_is_read(
    nursery: Nursery, readers: Readers, picture: Source, slow: Source, harm: Harm
) -> None:
    first = psutil.Process(nursery.start())
    with reading(nursery, readers, slow):
        harm(first)
        assert is_read(readers, picture)
        assert nursery.start() != first.pid


def test_readers_that_died_with_it_get_no_job(nursery: Nursery, readers: Readers, picture: Source, harm: Harm) -> None:
    assert is_read(readers, picture)
    (reader,) = processes_that_read(nursery)
    harm(psutil.Process(nursery.start()))
    reader.kill()
    psutil.wait_procs([reader])
    assert is_read(readers, picture)


def test_one_that_is_lent_is_replaced_for_who_borrows_it(
    nursery: Nursery, setup: Setup, picture: Source, harm: Harm
) -> None:
    others = threading.enumerate()
    with nursery.lend() as lender, closing(Readers(LentNursery(lender), setup)) as readers:
        (lending,) = (thread for thread in threading.enumerate() if thread not in others)
        harm(psutil.Process(nursery.start()))
        assert is_read(readers, picture)
    lending.join()


def test_who_borrows_one_that_is_closed_is_told(nursery: Nursery) -> None:
    with nursery.lend() as lender:
        nursery.close()
        with pytest.raises(RuntimeError, match="no process can be started"):
            LentNursery(lender).new_reader()


def test_a_stopped_one_is_closed(nursery: Nursery) -> None:
    process = psutil.Process(nursery.start())
    process.suspend()
    nursery.close()
    assert not process.is_running()
