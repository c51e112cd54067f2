"""Keeps a nursery: asks it for reading processes, and replaces it when it has ended or is stopped."""

import logging
import select
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import msgspec

from unifiedserve.reading.jobs import Setup
from unifiedserve.sandbox import environment_without_secrets
from unifiedserve.stopped import is_stopped

_log = logging.getLogger(__name__)
_MODULE = "unifiedserve.reading.nursery"
_LOOK_SECONDS = 1.0  # between two looks at a nursery that is to answer
_TRIES = 3  # of which each has a nursery of its own


class Nursery:
    """The process that forks reading processes, or its successor. Safe to use from several threads."""

    def __init__(self, setup: Setup) -> None:
        """Start the process; returns at once."""
        self._setup = setup
        self._closed = False
        self._asking = threading.Lock()
        self._start()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def new_reader(self) -> socket.socket:
        """Return the socket of a new reading process. Raises RuntimeError if there is none to be had."""
        with self._asking:
            for _ in range(_TRIES):
                if self._closed:
                    break
                if (reader := self._ask()) is not None:
                    return reader
                self._replace()
        raise _no_reader()

    def lend(self) -> socket.socket:
        """Return a socket over which another process gets reading processes, until it closes it (`LentNursery`)."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        threading.Thread(target=self._serve, args=(ours,), name="lent nursery", daemon=True).start()
        return theirs

    def close(self) -> None:
        """End the process; those that it forked end when their sockets are closed."""
        self._closed = True
        self._process.kill()  # whoever waits for its answer gives up
        with self._asking:
            self._end()

    def _serve(self, borrower: socket.socket) -> None:
        with borrower, suppress(OSError):  # the borrower has ended
            while borrower.recv(1):
                self._send_reader(borrower)

    def _send_reader(self, borrower: socket.socket) -> None:
        try:
            reader = self.new_reader()
        except RuntimeError:
            borrower.send(b"\0")  # which says so
            return
        with reader:
            socket.send_fds(borrower, [b"\0"], [reader.fileno()])

    def _start(self) -> None:
        self._asker, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", _MODULE, str(theirs.fileno()), msgspec.json.encode(self._setup).decode()]
            environment = {**environment_without_secrets(), "OPENBLAS_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL
            )

    def _end(self) -> None:
        self._asker.close()
        self._process.kill()  # it holds nothing, and would not end by itself if it is stopped
        self._process.wait()

    def _replace(self) -> None:
        if self._closed:
            return
        self._end()
        _log.warning(
            "the process that starts readers of media (%d) has ended or was stopped: another one starts",
            self._process.pid,
        )
        with suppress(OSError):  # too many processes: the next try finds no nursery, and starts one
            self._start()

    def _ask(self) -> socket.socket | None:
        """Return the socket of a reading process; None from a nursery that has ended or is stopped."""
        with suppress(OSError):  # it has ended
            self._asker.send(b"\0")
            if self._answers():
                return _given_reader(self._asker)
        return None

    def _answers(self) -> bool:
        """Wait for the answer, for which imports may take long; False if the process is stopped."""
        poll = select.poll()
        poll.register(self._asker, select.POLLIN)
        while not poll.poll(_LOOK_SECONDS * 1000):
            if is_stopped(self.pid):
                return False
        return True


class LentNursery:
    """A nursery that another process keeps, for one that may start none. Safe to use from several threads."""

    def __init__(self, lender: socket.socket) -> None:
        """Take what `Nursery.lend` returned."""
        self._lender = lender
        self._asking = threading.Lock()

    def new_reader(self) -> socket.socket:
        """Return the socket of a new reading process. Raises RuntimeError if there is none to be had."""
        with self._asking:
            self._lender.send(b"\0")
            reader = _given_reader(self._lender)
        if reader is None:
            raise _no_reader()
        return reader


def _given_reader(giver: socket.socket) -> socket.socket | None:
    """Take the socket of a reading process from who was asked for one; None if nobody has one."""
    _, descriptors, _, _ = socket.recv_fds(giver, 1, 1)
    return socket.socket(fileno=descriptors[0]) if descriptors else None


def _no_reader() -> RuntimeError:
    return RuntimeError("no process can be started that reads media")
