"""Run the engine's side of the zygote (worker/zygote.py).

One serves all engines of this process, from the first need on, or one that was started before (`zygote_process`).
"""

import atexit
import logging
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from unifiedserve.engine.zygote_process import PROGRAM, ZygoteProcess, pair_of_sockets, start_process, take_early
from unifiedserve.stopped import is_stopped
from unifiedserve.worker.spec import WorkerSpec
from unifiedserve.worker.zygote_messages import (
    Exited,
    FromZygote,
    Leave,
    Preload,
    Refused,
    Start,
    Started,
    ToZygote,
    receive,
)

_log = logging.getLogger(__name__)
_STDERR = 2
_LAST_SECONDS = 0.5  # for a zygote that closed its socket
_TELLING_SECONDS = 5.0  # in which a zygote tells the exit code of a worker that has ended
_LOOK_SECONDS = 1.0  # between two looks at a zygote that is to answer


class ZygoteError(Exception):
    """Signal that no worker can be started: the zygote is gone, or refuses."""


class WorkerProcess:
    """Watch a worker's process, a child of the zygote.

    The zygote says how it ended; that it ended is seen without it.
    """

    def __init__(self, pid: int, pidfd: int, on_silence: Callable[[], None]) -> None:
        """Watch a process. `on_silence` ends a zygote that does not say how the process ended."""
        self.pid = pid
        self._pidfd = pidfd
        self._on_silence = on_silence
        self._code: int | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()  # nobody closes the descriptor while another uses it

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code (-N if signal N killed it) once it has ended. None if it has not within `timeout` s."""
        if timeout is None:
            self._wait_for_end()
        self._ended.wait(timeout)
        return self._code

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        with self._lock, suppress(ProcessLookupError):
            if self._code is None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def end(self, code: int) -> None:
        """Record its exit code and wake the waiters."""
        with self._lock:
            self._code = code
            os.close(self._pidfd)
        self._ended.set()

    def end_with_zygote(self) -> None:
        """Make sure that it has ended with the zygote. Nobody can tell its exit code then."""
        self.kill()
        _await_end(self._pidfd)
        self.end(-signal.SIGKILL)

    def _wait_for_end(self) -> None:
        """Wait for the kernel's word that it has ended. A zygote that stays silent soon after is ended."""
        with self._lock:
            if self._code is not None:
                return
            pidfd = os.dup(self._pidfd)
        try:
            _await_end(pidfd)
        finally:
            os.close(pidfd)
        if not self._ended.wait(_TELLING_SECONDS):
            self._on_silence()


def _await_end(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll()


class Zygote:
    """Run a zygote process, and the workers that it started. Safe to use from several threads."""

    def __init__(self, program: tuple[str, ...] = PROGRAM, started: ZygoteProcess | None = None) -> None:
        """Start the process of this `program`, unless it has been; returns at once."""
        self.alive = True
        self._closing = False
        self._told_of_obstacles = False
        self._process: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, WorkerProcess] = {}
        self._replies: queue.SimpleQueue[WorkerProcess | ZygoteError] = queue.SimpleQueue()
        self._asking = threading.Lock()
        if started:
            self._process, self._socket = started
            run = partial(self._attend, started.process)
        else:
            self._socket, theirs = pair_of_sockets()
            run = partial(self._start, theirs, program)
        self._thread = threading.Thread(target=run, name="zygote", daemon=True)
        self._thread.start()

    def preload(self, model_dir: Path, dtype: str) -> None:
        """Have it import what the workers of this checkpoint will need; returns at once.

        `dtype` is that of its activations, or "auto".
        """
        with suppress(OSError):  # it is gone, as the next request for a worker will learn
            self._send(Preload(str(model_dir.absolute()), dtype))

    def start(
        self, spec: WorkerSpec, environment: dict[str, str] | None = None, nursery: socket.socket | None = None
    ) -> WorkerProcess:
        """Start a worker with these additions to its environment and a lent nursery, if any. Raises ZygoteError."""
        request = Start(spec, os.getcwd(), environment or {}, nursery is not None)
        lent = [] if nursery is None else [nursery.fileno()]
        with self._asking:
            if not self.alive:
                raise ZygoteError("the process that starts workers has ended")
            with suppress(OSError):  # it is gone, as the reply says
                self._send(request, *lent, *_standard_error())
            reply = self._reply()
        if isinstance(reply, ZygoteError):
            raise reply
        return reply

    def close(self) -> None:
        """End it, and all its workers with it. Safe to call twice."""
        self._closing = True
        with suppress(OSError):
            self._send(Leave())
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _reply(self) -> WorkerProcess | ZygoteError:
        """Return the answer to a request. Imports may make it take long; a zygote that is stopped is ended."""
        while True:
            with suppress(queue.Empty):
                return self._replies.get(timeout=_LOOK_SECONDS)
            if self._process is not None and is_stopped(self._process.pid):
                self._kill()

    def _kill(self) -> None:
        """End a zygote that does not answer, and its workers with it."""
        if self._process is not None:
            _log.error("the process that starts workers (%d) does not answer: it is ended", self._process.pid)
            self._process.kill()

    def _send(self, message: ToZygote, *descriptors: int) -> None:
        socket.send_fds(self._socket, [msgspec.msgpack.encode(message)], descriptors)

    def _start(self, theirs: socket.socket, program: tuple[str, ...]) -> None:
        """Start the process and read what it says. The kernel ends the process with this thread."""
        try:
            self._process = process = start_process(theirs, program)
        except OSError as error:
            self._bury(f"the process that starts workers cannot be started: {error}")
            return
        self._attend(process)

    def _attend(self, process: "subprocess.Popen[bytes]") -> None:
        """Read what the process says until it ends."""
        try:
            self._receive_all()
        finally:
            self._bury(f"the process that starts workers ended with code {self._end(process)}; its log is above")

    def _end(self, process: "subprocess.Popen[bytes]") -> int:
        """Await the exit code of the process, which is about to end; kill it if it does not."""
        try:
            return process.wait(0 if self._closing else _LAST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _receive_all(self) -> None:
        while True:
            data, descriptors = receive(self._socket)
            if not data:
                return
            self._handle(msgspec.msgpack.decode(data, type=FromZygote), descriptors)

    def _handle(self, message: FromZygote, descriptors: list[int]) -> None:
        match message:
            case Started(pid, obstacles):
                self._tell_of(obstacles)
                self._workers[pid] = process = WorkerProcess(pid, descriptors[0], self._kill)
                self._replies.put(process)
            case Refused(reason):
                self._replies.put(ZygoteError(reason))
            case Exited(pid, code):
                self._workers.pop(pid).end(code)

    def _tell_of(self, obstacles: str) -> None:
        if obstacles and not self._told_of_obstacles:
            _log.warning("each worker imports all that it needs, seconds slower than a fork, because %s", obstacles)
            self._told_of_obstacles = True

    def _bury(self, reason: str) -> None:
        self.alive = False
        self._socket.close()
        self._replies.put(ZygoteError(reason))
        for process in self._workers.values():
            process.end_with_zygote()


class _Shared:
    """Hold the zygote of this process."""

    def __init__(self) -> None:
        self._zygote: Zygote | None = None
        self._lock = threading.Lock()

    def get(self) -> Zygote:
        with self._lock:
            if self._zygote is None or not self._zygote.alive:
                self._zygote = Zygote(started=take_early())
            return self._zygote

    def close(self) -> None:
        with self._lock:
            if self._zygote is not None:
                self._zygote.close()


_shared = _Shared()


def shared_zygote() -> Zygote:
    """Return the zygote of this process; start one if there is none, or if it died."""
    return _shared.get()


def _close_shared() -> None:
    _shared.close()


def _forget_shared() -> None:
    global _shared
    _shared = _Shared()  # the old one's socket closes with it


def _standard_error() -> list[int]:
    """Return the descriptor to pass on, if there is one: a worker's log goes where ours goes now."""
    return [_STDERR] if sys.__stderr__ is not None else []


atexit.register(_close_shared)
os.register_at_fork(after_in_child=_forget_shared)  # a forked process must not talk with its parent's zygote
