"""Start the zygote's process. It imports the standard library only: a command begins with it."""

import atexit
import signal
import socket
import subprocess
import sys
from typing import NamedTuple

from unifiedserve.environment import environment_of_workers

PROGRAM = ("-m", "unifiedserve.worker", "zygote")


class ZygoteProcess(NamedTuple):
    """Hold a zygote's process, and our end of the socket over which it is asked."""

    process: "subprocess.Popen[bytes]"
    socket: socket.socket


def pair_of_sockets() -> tuple[socket.socket, socket.socket]:
    """Return our end of a socket, and the process's."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def start_process(theirs: socket.socket, program: tuple[str, ...] = PROGRAM) -> "subprocess.Popen[bytes]":
    """Start what Python runs as `program`, with its socket's descriptor appended; closes ours of it. Raises OSError.

    The kernel ends the process with the calling thread.
    """
    # in the child until it ignores them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        with theirs:
            return subprocess.Popen(
                [sys.executable, *program, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment_of_workers(),
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Early:
    """Hold a process that was started before it is wanted."""

    def __init__(self) -> None:
        self._started: ZygoteProcess | None = None

    def start(self) -> None:
        ours, theirs = pair_of_sockets()
        self._started = ZygoteProcess(start_process(theirs), ours)
        atexit.register(self._end)

    def take(self) -> ZygoteProcess | None:
        started, self._started = self._started, None
        return started

    def _end(self) -> None:
        if started := self.take():
            started.process.kill()
            started.process.wait()


_early = _Early()


def start_early() -> None:
    """Start the process of this one's zygote, so that its imports go on beside ours. Raises OSError."""
    _early.start()


def take_early() -> ZygoteProcess | None:
    """Return what `start_early` has started; None if it has not, or another has taken it."""
    return _early.take()
