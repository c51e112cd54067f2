"""One reading process: does jobs until nobody asks any more, and ends when nobody wants the result."""

import fcntl
import os
import signal
import socket
from typing import NoReturn

from unifiedserve.reading.jobs import Done, Job, Setup, failure, pack, unpack_job
from unifiedserve.reading.peers import is_closed
from unifiedserve.reading.work import read

_MESSAGE_BYTES = 1 << 17


def serve(peer: socket.socket, setup: Setup) -> NoReturn:
    """Do jobs for whoever holds the other end. The kernel ends the process when that is closed during a job."""
    fcntl.fcntl(peer, fcntl.F_SETOWN, os.getpid())
    while data := peer.recv(_MESSAGE_BYTES):
        job = unpack_job(data)
        _answer(peer, job, setup.seconds_for(job))
    os._exit(0)


def _answer(peer: socket.socket, job: Job, seconds: float) -> None:
    _watch(peer, True)
    try:
        result = _result(job, seconds)
    except Exception as error:
        _watch(peer, False)
        peer.send(pack(failure(error)))
        return
    _watch(peer, False)
    socket.send_fds(peer, [pack(Done())], [result])
    os.close(result)


def _result(job: Job, seconds: float) -> int:
    """Return the descriptor of memory that holds the result."""
    signal.setitimer(signal.ITIMER_PROF, seconds)  # the signal ends the process, in a library's loop too
    try:
        data = memoryview(read(job)).cast("B")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    result = os.memfd_create("read", os.MFD_CLOEXEC)
    while data:
        data = data[os.write(result, data) :]
    return result


def _watch(peer: socket.socket, watched: bool) -> None:
    """Have the kernel signal what happens at the other end: while a job is done, that is its closing only."""
    flags = fcntl.fcntl(peer, fcntl.F_GETFL) & ~os.O_ASYNC
    fcntl.fcntl(peer, fcntl.F_SETFL, flags | os.O_ASYNC if watched else flags)
    if watched and is_closed(peer):
        os._exit(0)
