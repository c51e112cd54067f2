"""Run the zygote: a process with all imports of workers, which forks one in milliseconds.

`python -m unifiedserve.worker zygote FD` talks with the engine over a socket of packets that it inherits as
descriptor FD (worker/zygote_messages.py). It ends, and its workers with it, when the engine's process does; if that was
killed, it removes the shared memory that is left of it before.
It should stay a process of one thread that never touched a GPU, because threads and CUDA do not survive a fork. Where
an import starts a thread or opens a GPU, each worker gets an interpreter of its own, which imports again.
"""

import gc
import os
import select
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import torch

from ipc_buffers import remove_stale_arenas
from unifiedserve.device import CPU
from unifiedserve.kept_texts import end_keeping
from unifiedserve.messages.layouts import decode_layout
from unifiedserve.models.adapters import preload
from unifiedserve.parents_end import signal_parents_end
from unifiedserve.worker.fork_obstacles import fork_obstacles
from unifiedserve.worker.new_interpreter import start_interpreter
from unifiedserve.worker.process import become_worker, prepare_interpreter
from unifiedserve.worker.process_name import rename
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

_STDERR = 2
_LAST_MILLISECONDS = 5000  # for an engine whose socket is closed to be gone


class ZygoteLoop:
    """Start workers for the engine and tell it how they ended."""

    def __init__(self, engine: socket.socket) -> None:
        self._engine = engine
        self._left = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(engine, selectors.EVENT_READ)

    def serve(self) -> bool:
        """Serve until the engine closes its end of the socket; return whether it took its leave before."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._engine:
                    self._report_exit(key.fd, *key.data)
                elif not self._handle_request():
                    return self._left

    def _handle_request(self) -> bool:
        """Answer a request, and return whether there was one: False once the engine is gone."""
        data, descriptors = receive(self._engine)
        if not data:
            return False
        match msgspec.msgpack.decode(data, type=ToZygote, dec_hook=decode_layout):
            case Preload(model_dir, dtype):
                _preload(model_dir, CPU.best_dtype() if dtype == "auto" else dtype)
            case Leave():
                self._left = True
            case Start() as request:
                self._start(*_with_nursery(request, descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _start(self, request: Start, descriptors: list[int]) -> None:
        _preload(request.spec.model_dir, request.spec.dtype, request.directory)
        end_keeping()
        obstacles = "; ".join(fork_obstacles())
        try:
            if obstacles:
                process = start_interpreter(request, next(iter(descriptors), None))
                pid, wait = process.pid, process.wait
            else:
                pid = self._fork(request, descriptors)
                wait = partial(_wait, pid)
        except OSError as error:  # no memory, or too many processes
            self._send(Refused(f"workers cannot be started: {error}"))
            return
        pidfd = os.pidfd_open(pid)
        self._selector.register(pidfd, selectors.EVENT_READ, (pid, wait))
        self._send(Started(pid, obstacles), pidfd)

    def _fork(self, request: Start, descriptors: list[int]) -> int:
        gc.freeze()  # a collection in a worker must not copy the pages that all share
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(request, descriptors, zygote)
        return pid

    def _become_worker(self, request: Start, descriptors: list[int], zygote: int) -> NoReturn:
        def prepare() -> None:
            self._forget_engine()
            _apply(request, descriptors)

        become_worker(zygote, prepare, request.spec)

    def _forget_engine(self) -> None:
        """Close what belongs to the zygote: a worker that held it would hide the engine's end."""
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._engine.detach()
        self._selector.close()

    def _report_exit(self, pidfd: int, pid: int, wait: Callable[[], int]) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        self._send(Exited(pid, wait()))

    def _send(self, message: FromZygote, *descriptors: int) -> None:
        with suppress(BrokenPipeError):  # the engine is gone, as the next read will say
            socket.send_fds(self._engine, [msgspec.msgpack.encode(message)], descriptors)


def _wait(pid: int) -> int:
    """Return the exit code of an ended child, or minus the signal that killed it."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _preload(model_dir: str, dtype: str, directory: str = "") -> None:
    with suppress(Exception):  # a worker meets it again, and says what is wrong with the checkpoint
        preload(Path(directory, model_dir), getattr(torch, dtype))


def _apply(request: Start, descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.dup2(descriptor, _STDERR)
        os.close(descriptor)
    os.chdir(request.directory)
    os.environ.update(request.environment)


def _with_nursery(request: Start, descriptors: list[int]) -> tuple[Start, list[int]]:
    """Return a request whose worker knows the descriptor of its nursery, and the other descriptors."""
    if not request.nursery:
        return request, descriptors
    nursery, *others = descriptors
    spec = msgspec.structs.replace(request.spec, nursery=nursery)
    return msgspec.structs.replace(request, spec=spec), others


def _clean_up(parent: int) -> None:
    """Remove the shared memory of engines that have been killed.

    The parent was one of them. An engine that lives has closed the socket, and removes its own.
    """
    with suppress(ProcessLookupError):  # it is gone altogether
        ended = select.poll()
        ended.register(os.pidfd_open(parent), select.POLLIN)
        ended.poll(_LAST_MILLISECONDS)
    remove_stale_arenas()


def _ignore_signals() -> None:
    """Leave what reaches the whole group, as Ctrl-C does, to the engine: it sends Shutdown to the workers."""
    ours = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    for number in ours:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)  # blocked by the engine until here


def main() -> None:
    """Run the process."""
    parent = os.getppid()
    signal_parents_end(signal.SIGCONT)  # so that it sees it, even if a signal has stopped it
    _ignore_signals()
    rename("us:zygote")
    prepare_interpreter()
    left = ZygoteLoop(socket.socket(fileno=int(sys.argv[1]))).serve()
    if not left:
        _clean_up(parent)
    os._exit(0)  # at once: somebody waits
