"""Run one reading process. It does jobs until nobody asks any more, and ends when nobody wants the result."""

import fcntl
import os
import signal
import socket
from typing import NoReturn

from unifiedserve.reading.jobs import Done, ImagePixels, Job, Setup, failure, pack, unpack_job
from unifiedserve.reading.peers import is_closed
from unifiedserve.reading.work import pixels_of, read

_MESSAGE_BYTES = 1 << 17


def serve(peer: socket.socket, setup: Setup) -> NoReturn:
    """Do jobs for the process at the other end. The kernel ends the process when that is closed during a job."""
    fcntl.fcntl(peer, fcntl.F_SETOWN, os.getpid())
    while data := peer.recv(_MESSAGE_BYTES):
        _answer(peer, unpack_job(data), setup)
    os._exit(0)


def _answer(peer: socket.socket, job: Job, setup: Setup) -> None:
    _watch(peer, True)
    try:
        result = _result(job, setup)
    except Exception as error:
        _watch(peer, False)
        peer.send(pack(failure(error)))
        return
    _watch(peer, False)
    socket.send_fds(peer, [pack(Done())], [result])
    os.close(result)


def _result(job: Job, setup: Setup) -> int:
    """Return the descriptor of memory that holds the result."""
    _end_after(setup.seconds_for(job))
    try:
        if isinstance(job, ImagePixels):
            _end_after(setup.seconds_for(job, pixels_of(job)))
        data = memoryview(read(job)).cast("B")
    finally:
        _end_after(0)
    result = os.memfd_create("read", os.MFD_CLOEXEC)
    while data:
        data = data[os.write(result, data) :]
    return result


def _end_after(seconds: float) -> None:
    """Have the kernel end the process after so much processor time. A library's loop ends, too; 0: it does not."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _watch(peer: socket.socket, watched: bool) -> None:
    """Have the kernel signal what happens at the other end: while a job is done, that is its closing only."""
    flags = fcntl.fcntl(peer, fcntl.F_GETFL) & ~os.O_ASYNC
    fcntl.fcntl(peer, fcntl.F_SETFL, flags | os.O_ASYNC if watched else flags)
    if watched and is_closed(peer):
        os._exit(0)
