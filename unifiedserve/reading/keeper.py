"""Keep a nursery: ask it for reading processes, and replace it when it has ended or is stopped."""

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import NamedTuple

import msgspec

from unifiedserve.environment import environment_of_readers
from unifiedserve.reading.jobs import Setup
from unifiedserve.reading.peers import PID_BYTES
from unifiedserve.stopped import is_stopped

_log = logging.getLogger(__name__)
_MODULE = "unifiedserve.reading.nursery"
_LOOK_SECONDS = 1.0  # between two looks at a nursery that is to answer
_TRIES = 3  # of which each has a nursery of its own
_NOBODY = 0  # in place of a process id: of the reader that is wanted, or that there is none


class Reader(NamedTuple):
    """Hold a reading process: its id, and the socket over which it takes jobs."""

    pid: int
    peer: socket.socket


class _Running(NamedTuple):
    """Hold the process that forks readers, and the socket over which it is asked."""

    process: "subprocess.Popen[bytes]"
    asker: socket.socket

    @classmethod
    def start(cls, setup: Setup) -> "_Running":
        """Start it; returns at once. Raises OSError."""
        asker, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", _MODULE, str(theirs.fileno()), msgspec.json.encode(setup).decode()]
            process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environment_of_readers(), stdin=subprocess.DEVNULL
            )
            return cls(process, asker)

    def end(self) -> None:
        self.asker.close()
        self.process.kill()  # it holds nothing, and would not end by itself if it is stopped
        self.process.wait()


class Nursery:
    """Hold the process that forks reading processes, or its successor. Safe to use from several threads."""

    def __init__(self, setup: Setup) -> None:
        """Start no process yet: the first reader that is asked for, or `start`, does."""
        self._setup = setup
        self._running: _Running | None = None
        self._closed = False
        self._asking = threading.Lock()
        self._living: dict[int, int] = {}  # descriptors of the readers' processes, by process id
        self._looking = threading.Lock()
        self._later: threading.Timer | None = None

    def start(self) -> int:
        """Start the process, unless it runs, and return its id. Raises OSError, and RuntimeError after `close`."""
        with self._asking:
            if self._closed:
                raise _no_reader()
            return self._started().process.pid

    def start_in(self, seconds: float) -> None:
        """Have the process started after so many seconds: its imports are done when a reader is wanted."""
        self._later = threading.Timer(seconds, self._start_quietly)
        self._later.daemon = True
        self._later.start()

    def new_reader(self) -> Reader:
        """Return a new reading process. Raises RuntimeError if there is none to be had."""
        with self._asking:
            for _ in range(_TRIES):
                if self._closed:
                    break
                if (reader := self._ask()) is not None:
                    return reader
                self._replace()
        raise _no_reader()

    def end_if_stopped(self, pid: int) -> bool:
        """End a reading process that a signal has stopped; return whether it was one."""
        with self._looking:
            if pid not in self._living or not is_stopped(pid):
                return False
            _log.warning("a process that reads media (%d) was stopped: it is ended, and another one reads", pid)
            _kill(self._living[pid])
            return True

    def lend(self) -> socket.socket:
        """Return a socket over which another process gets reading processes, until it closes it (`LentNursery`)."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        threading.Thread(target=self._serve, args=(ours,), name="lent nursery", daemon=True).start()
        return theirs

    def close(self) -> None:
        """End the process and those that it forked."""
        self._closed = True
        if self._later:
            self._later.cancel()
        if running := self._running:
            running.process.kill()  # waiters for its answer give up
        with self._asking:
            if self._running:
                self._running.end()
        with self._looking:
            for process in self._living.values():
                _kill(process)
                os.close(process)
            self._living.clear()

    def _serve(self, borrower: socket.socket) -> None:
        with borrower, suppress(OSError):  # the borrower has ended
            while asked := borrower.recv(PID_BYTES):
                if (pid := int.from_bytes(asked)) == _NOBODY:
                    self._send_reader(borrower)
                else:
                    borrower.send(bytes([self.end_if_stopped(pid)]))

    def _send_reader(self, borrower: socket.socket) -> None:
        try:
            pid, peer = self.new_reader()
        except RuntimeError:
            borrower.send(_packed(_NOBODY))
            return
        with peer:
            socket.send_fds(borrower, [_packed(pid)], [peer.fileno()])

    def _start_quietly(self) -> None:
        with suppress(OSError, RuntimeError):  # too many processes, or it is closed: a request for a reader will tell
            self.start()

    def _started(self) -> _Running:
        if self._running is None:
            self._running = _Running.start(self._setup)
        return self._running

    def _replace(self) -> None:
        if self._closed or self._running is None:
            return
        self._running.end()
        _log.warning(
            "the process that starts readers of media (%d) has ended or was stopped: another one starts",
            self._running.process.pid,
        )
        self._running = None

    def _ask(self) -> Reader | None:
        """Return a reading process; None from a nursery that has ended or is stopped, or cannot be started."""
        with suppress(OSError):  # it has ended, or there are too many processes
            running = self._started()
            running.asker.send(b"\0")
            if _answers(running):
                data, descriptors, _, _ = socket.recv_fds(running.asker, PID_BYTES, 2)
                if descriptors:
                    return self._kept(int.from_bytes(data), *descriptors)
        return None

    def _kept(self, pid: int, peer: int, process: int) -> Reader:
        """Return a reader, whose process is known until it has ended."""
        with self._looking:
            for ended in [pid for pid, living in self._living.items() if _has_ended(living)]:
                os.close(self._living.pop(ended))
            self._living[pid] = process
        return Reader(pid, socket.socket(fileno=peer))


class LentNursery:
    """Use a nursery that another process keeps, where one may start none. Safe to use from several threads."""

    def __init__(self, lender: socket.socket) -> None:
        """Take what `Nursery.lend` returned."""
        self._lender = lender
        self._asking = threading.Lock()

    def new_reader(self) -> Reader:
        """Return a new reading process. Raises RuntimeError if there is none to be had."""
        with self._asking:
            self._lender.send(_packed(_NOBODY))
            data, descriptors, _, _ = socket.recv_fds(self._lender, PID_BYTES, 1)
        if not descriptors:
            raise _no_reader()
        return Reader(int.from_bytes(data), socket.socket(fileno=descriptors[0]))

    def end_if_stopped(self, pid: int) -> bool:
        """End a reading process that a signal has stopped; return whether it was one."""
        with self._asking, suppress(OSError):  # the lender has ended
            self._lender.send(_packed(pid))
            return self._lender.recv(1) == b"\1"
        return False


def _answers(running: _Running) -> bool:
    """Wait for the answer, for which imports may take long; False if the process is stopped."""
    poll = select.poll()
    poll.register(running.asker, select.POLLIN)
    while not poll.poll(_LOOK_SECONDS * 1000):
        if is_stopped(running.process.pid):
            return False
    return True


def _packed(pid: int) -> bytes:
    return pid.to_bytes(PID_BYTES)


def _has_ended(process: int) -> bool:
    """Tell whether the process of a descriptor has ended."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(0))


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):  # it has ended
        signal.pidfd_send_signal(process, signal.SIGKILL)


def _no_reader() -> RuntimeError:
    return RuntimeError("no process can be started that reads media")
