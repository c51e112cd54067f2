"""The zygote: a process that has imported all that workers need, and forks one in milliseconds when asked.

`python -m unifiedserve.worker.zygote FD` talks with the engine over a socket of packets that it inherits as
descriptor FD (worker/zygote_messages.py). It ends, and its workers with it, when the engine's process does.
It must stay a process of one thread that never touched a GPU: threads and CUDA do not survive a fork.
"""

import ctypes
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from unifiedserve.config import LARGE_IMAGE_WARNING
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.registry import preload
from unifiedserve.worker import loop
from unifiedserve.worker.assembly import DAMAGED_WEIGHTS, DamagedWeightsError
from unifiedserve.worker.zygote_messages import Exited, Fork, Forked, FromZygote, Preload, Refused, ToZygote, receive

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_STDERR = 2


class Zygote:
    """The loop that forks workers for the engine and tells it how they ended."""

    def __init__(self, engine: socket.socket) -> None:
        self._engine = engine
        self._selector = selectors.DefaultSelector()
        self._selector.register(engine, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serve until the engine closes its end of the socket."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._engine:
                    self._report_exit(key.fd, key.data)
                elif not self._handle_request():
                    return

    def _handle_request(self) -> bool:
        """Answer a request, and return whether there was one: False once the engine is gone."""
        data, descriptors = receive(self._engine)
        if not data:
            return False
        match msgspec.msgpack.decode(data, type=ToZygote):
            case Preload(model_dir):
                _preload(model_dir)
            case Fork() as request:
                self._fork(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork(self, request: Fork, descriptors: list[int]) -> None:
        _preload(request.spec.model_dir, request.directory)
        if reasons := fork_obstacles():
            self._refuse("; ".join(reasons))
            return
        gc.freeze()  # a collection in a worker must not copy the pages that all share
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or too many processes
            self._refuse(str(error))
            return
        if pid == 0:
            self._become_worker(request, descriptors, zygote)
        pidfd = os.pidfd_open(pid)
        self._selector.register(pidfd, selectors.EVENT_READ, pid)
        self._send(Forked(pid), pidfd)

    def _refuse(self, reason: str) -> None:
        self._send(Refused(f"workers cannot be forked: {reason}"))

    def _become_worker(self, request: Fork, descriptors: list[int], zygote: int) -> NoReturn:
        code = 1
        try:
            end_with_parent()
            if os.getppid() == zygote:  # else it died before the line above took hold
                self._forget_engine()
                _apply(request, descriptors)
                loop.run(request.spec)
                code = 0
        except DamagedWeightsError as error:
            logging.error("%s", error)
            code = DAMAGED_WEIGHTS
        except BaseException:
            logging.exception("the worker cannot go on")
        finally:
            logging.shutdown()
            os._exit(code)

    def _forget_engine(self) -> None:
        """Close what belongs to the zygote: a worker that held it would hide the engine's end."""
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._engine.detach()
        self._selector.close()

    def _report_exit(self, pidfd: int, pid: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._send(Exited(pid, os.waitstatus_to_exitcode(status)))

    def _send(self, message: FromZygote, *descriptors: int) -> None:
        with suppress(BrokenPipeError):  # the engine is gone, as the next read will say
            socket.send_fds(self._engine, [msgspec.msgpack.encode(message)], descriptors)


def fork_obstacles() -> list[str]:
    """Return why a process forked from this one would not work: its further threads, and a GPU in use."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    others = [int(task.name) for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()]
    threads = [f"thread {names.get(task, 'of a library')} ({_comm(task)}, {task})" for task in others]
    gpus = sorted({name for name in _open_files() if name.startswith("/dev/nvidia")})
    return [f"{thread} runs" for thread in threads] + [f"{name} is open" for name in gpus]


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent, or the thread of it that started it, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _comm(task: int) -> str:
    return Path(f"/proc/self/task/{task}/comm").read_text().strip()


def _open_files() -> list[str]:
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that listed them is closed again
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return names


def _preload(model_dir: str, directory: str = "") -> None:
    with suppress(Exception):  # a worker meets it again, and says what is wrong with the checkpoint
        preload(Path(directory, model_dir))


def _apply(request: Fork, descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.dup2(descriptor, _STDERR)
        os.close(descriptor)
    os.chdir(request.directory)
    os.environ.update(request.environment)
    _rename(f"us:{request.spec.instance.name}")


def _rename(name: str) -> None:
    """Set the name (at most 15 characters are kept) that `ps -o comm` and `top` show."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def _ignore_signals() -> None:
    """Leave what reaches the whole group, as Ctrl-C does, to the engine: it sends Shutdown to the workers."""
    ours = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    for number in ours:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)  # blocked by the engine until here


def main() -> None:
    """Run the process."""
    end_with_parent()
    _ignore_signals()
    _rename("us:zygote")
    warnings.filterwarnings("ignore", LARGE_IMAGE_WARNING)
    load_transformers()
    Zygote(socket.socket(fileno=int(sys.argv[1]))).serve()
    os._exit(0)  # at once: somebody waits


if __name__ == "__main__":
    main()
