"""What is done to a worker, or to the machine below it."""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import NamedTuple
from unittest import mock

import psutil

from unifiedserve.engine import zygote
from unifiedserve.errors import ErrorKind

_DAY = 86_400.0  # seconds
_SMALL_FILE = 64 << 10  # bytes that a file may have where there is no room; what is logged is shorter
# What workers are forked from: they raise an exception some calls after SIGUSR1, but none after SIGUSR2, and their
# clock jumps at SIGURG.
_ZYGOTE = f"""
import random, signal, sys, time

def fail(number, frame):
    left = iter(range(random.randrange(300)))

    def count(frame, event, argument):
        if event == "call" and next(left, None) is None:
            sys.setprofile(None)
            raise RuntimeError("an exception at a signal")

    sys.setprofile(count)

def rest(number, frame):
    sys.setprofile(None)

def jump(number, frame, real=time.time):
    time.time = lambda: real() - {_DAY}

signal.signal(signal.SIGUSR1, fail)
signal.signal(signal.SIGUSR2, rest)
signal.signal(signal.SIGURG, jump)
from unifiedserve.worker.zygote import main
main()
"""

Strike = Callable[[int], AbstractContextManager[None]]  # takes the worker's process id; its end undoes what can be


class Fault(NamedTuple):
    """A kind of fault: how often it comes beside others, whether the worker ends of it, and what requests may end with.

    `engine` tells that the whole engine may end of it.
    """

    name: str
    weight: float
    strike: Strike
    deadly: bool = True
    errors: frozenset[ErrorKind] = frozenset()
    engine: bool = False


@contextmanager
def _signalled(number: signal.Signals, pid: int) -> Iterator[None]:
    os.kill(pid, number)
    yield


@contextmanager
def _raises(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGUSR1)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR2)


@contextmanager
def _short_of_memory(pid: int) -> Iterator[None]:
    """Leave a worker no more address space than it has."""
    usual = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (psutil.Process(pid).memory_info().vms, usual[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_AS, usual)


@contextmanager
def _small_files(*pids: int) -> Iterator[None]:
    """Let processes (0: this one) make no file or shared memory larger than some KiB, as if there was no room."""
    usual = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid, (_, hard) in usual.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_SMALL_FILE, hard))
    try:
        yield
    finally:
        for pid, limits in usual.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


@contextmanager
def _killed_without_room(pid: int) -> Iterator[None]:
    with _small_files(0):
        os.kill(pid, signal.SIGKILL)
        yield


@contextmanager
def _clocks_jump(pid: int) -> Iterator[None]:
    """Set the clock of this process a day forward, and that of a worker a day back; monotonic ones go on."""
    real = time.time
    os.kill(pid, signal.SIGURG)
    with mock.patch("time.time", side_effect=lambda: real() + _DAY):
        yield


def _sends(number: signal.Signals) -> Strike:
    return partial(_signalled, number)


NOTHING = Fault("nothing", 1, lambda pid: nullcontext(), deadly=False)
AT_FULL_MEMORY = Fault(
    "SIGKILL, /dev/shm is full",
    0.15,
    _killed_without_room,
    errors=frozenset({ErrorKind.UNAVAILABLE, ErrorKind.NO_ROOM}),
    engine=True,
)
FAULTS = (
    NOTHING,
    Fault("SIGKILL", 2, _sends(signal.SIGKILL)),
    Fault("SIGSEGV", 1.5, _sends(signal.SIGSEGV)),
    Fault("SIGBUS", 1, _sends(signal.SIGBUS)),
    Fault("SIGABRT", 0.5, _sends(signal.SIGABRT)),
    Fault("SIGSTOP", 0.7, _sends(signal.SIGSTOP)),
    Fault("exception", 1.5, _raises, deadly=False, errors=frozenset({ErrorKind.INTERNAL})),
    Fault("no memory", 1, _short_of_memory, deadly=False, errors=frozenset({ErrorKind.INVALID, ErrorKind.INTERNAL})),
    Fault("/dev/shm is full", 0.7, lambda pid: _small_files(0), deadly=False, errors=frozenset({ErrorKind.NO_ROOM})),
    Fault("disk is full", 0.7, lambda pid: _small_files(pid), deadly=False),
    Fault("clocks jump", 0.7, _clocks_jump, deadly=False),
    AT_FULL_MEMORY,
)


@contextmanager
def workers_with_faults(program: str = _ZYGOTE) -> Iterator[None]:
    """Start workers in this process from a Python program: this one has them raise exceptions and clocks jump."""
    ours = zygote.Zygote(("-c", program))
    with mock.patch.object(zygote._shared, "_zygote", ours):
        try:
            yield
        finally:
            ours.close()
