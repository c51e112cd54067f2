"""Ask reading processes, and end those whose answer nobody wants."""

import mmap
import os
import select
import socket
import threading
import time
from contextlib import suppress
from typing import Protocol

import flashcodec
from unifiedserve.reading.jobs import Failed, Job, Setup, exception, pack, unpack_answer
from unifiedserve.reading.keeper import LentNursery, Nursery, Reader
from unifiedserve.reading.peers import is_closed
from unifiedserve.reading.work import read

_MESSAGE_BYTES = 1 << 17
_LOOK_SECONDS = 1.0  # between two looks at a process that is to answer
_TRIES = 3  # of which each has a process of its own
_CORES = os.cpu_count() or 1


class Cancellation:
    """End what is being read for a caller that does not want it any more. Safe to use from several threads."""

    def __init__(self) -> None:
        self.cancelled = False
        self._lock = threading.Lock()
        self._peers: set[socket.socket] = set()

    def cancel(self) -> None:
        """End all that is being read, and what would be read later."""
        with self._lock:
            self.cancelled = True
            for peer in self._peers:
                with suppress(OSError):
                    peer.shutdown(socket.SHUT_RDWR)

    def begin(self, peer: socket.socket) -> bool:
        """Note that a process reads; return whether it still may."""
        with self._lock:
            self._peers.add(peer)
            return not self.cancelled

    def end(self, peer: socket.socket) -> None:
        """Forget a process."""
        with self._lock:
            self._peers.discard(peer)


class Reading(Protocol):
    """Define what reads media."""

    def read(self, job: Job, cancellation: Cancellation | None = None) -> memoryview:
        """Return the result of a job, as long as it takes. Raises what `work.read` does, LimitError for too long."""

    def close(self) -> None:
        """End all that reads."""


class ReadHere:
    """Read in the calling thread: for tests, and where there are no others' media."""

    def read(self, job: Job, cancellation: Cancellation | None = None) -> memoryview:
        return memoryview(read(job))

    def close(self) -> None:
        """Do nothing."""


class _LostError(Exception):
    """Signal that the answering process ended early.

    It was stopped or ended by a signal from outside, or broke at once.
    """


class Readers:
    """Read in as many processes as threads ask at once. A process serves one after the other."""

    def __init__(self, nursery: Nursery | LentNursery, setup: Setup) -> None:
        """Have the processes that a nursery of this set-up forks; the keeper of the nursery closes it."""
        self._nursery = nursery
        self._setup = setup
        self._lock = threading.Lock()
        self._idle: list[Reader] = []

    def read(self, job: Job, cancellation: Cancellation | None = None) -> memoryview:
        """Return the result of a job, as long as it takes; if a signal stops or ends the process, another one does it.

        Raises what `work.read` does, LimitError for too long.
        """
        wanted = cancellation or Cancellation()
        for _ in range(_TRIES):
            with suppress(_LostError):
                return self._read(job, wanted)
        raise _ended(job, self._setup)

    def close(self) -> None:
        """End all processes that wait for a job."""
        while reader := self._waiting():
            reader.peer.close()

    def _read(self, job: Job, wanted: Cancellation) -> memoryview:
        reader, began = self._waiting() or self._nursery.new_reader(), time.monotonic()
        try:
            if not wanted.begin(reader.peer):
                raise _cancelled(job)
            data, descriptors = self._answer(reader, job)
        finally:
            wanted.end(reader.peer)
            if wanted.cancelled:
                self._nursery.end_if_stopped(reader.pid)  # it would not notice that its peer has gone
                reader.peer.close()
        if not data:
            reader.peer.close()
            if wanted.cancelled:
                raise _cancelled(job)
            if (time.monotonic() - began) * _CORES < self._setup.seconds_for(job):
                raise _LostError  # so soon that its time was not up
            raise _ended(job, self._setup)
        if not wanted.cancelled:
            self._idle.append(reader)
        answer = unpack_answer(data)
        if isinstance(answer, Failed):
            raise exception(answer)
        return _mapped(descriptors[0])

    def _answer(self, reader: Reader, job: Job) -> tuple[bytes, list[int]]:
        """Return what a process answers, and the memory beside it; nothing from one that ends instead."""
        poll = select.poll()
        poll.register(reader.peer, select.POLLIN)
        with suppress(OSError):  # it has ended
            reader.peer.send(pack(job))
            while not poll.poll(_LOOK_SECONDS * 1000):
                if self._nursery.end_if_stopped(reader.pid):
                    reader.peer.close()
                    raise _LostError
            data, descriptors, _, _ = socket.recv_fds(reader.peer, _MESSAGE_BYTES, 1)
            return data, descriptors
        return b"", []

    def _waiting(self) -> Reader | None:
        """Take a process that waits for a job; None if there is none that lives."""
        with self._lock:
            while self._idle:
                reader = self._idle.pop()
                if not is_closed(reader.peer):
                    return reader
                reader.peer.close()
        return None


def _mapped(descriptor: int) -> memoryview:
    try:
        size = os.fstat(descriptor).st_size
        return memoryview(mmap.mmap(descriptor, size) if size else b"")
    finally:
        os.close(descriptor)


def _cancelled(job: Job) -> Exception:
    return flashcodec.SourceError(_name(job), None, "nobody waits for it any more")


def _ended(job: Job, setup: Setup) -> Exception:
    reason = f"reading it takes more than {setup.bounds_of(job)}, or breaks its decoder"
    return flashcodec.LimitError(_name(job), None, reason)


def _name(job: Job) -> str:
    return job.source.path or f"<{job.source.size} bytes>"
