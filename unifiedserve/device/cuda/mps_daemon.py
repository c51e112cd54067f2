"""Run an MPS control daemon of an engine's own: a child with folders that nobody else uses.

NVIDIA, "Multi-Process Service", https://docs.nvidia.com/deploy/mps.
"""

import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from unifiedserve.doctor.libraries import CONTAINER, find_program
from unifiedserve.doctor.mps import CONTROL

_log = logging.getLogger(__name__)
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
VISIBLE = "CUDA_VISIBLE_DEVICES"
PREFIX = "unifiedserve-mps-"
_OWNER = "owner"  # file: process id and start time
_START_SECONDS, _ORDER_SECONDS, _STOP_SECONDS = 30.0, 3.0, 5.0
_POLL_SECONDS = 0.05
_LONGEST_ROOT = 56  # characters: with a folder's and a socket's name behind it, as many as a socket's address has


class MpsError(Exception):
    """Signal that MPS cannot be used, and why, in a line."""


class RefusedError(MpsError):
    """Signal an order that MPS refuses."""


class MpsDaemon:
    """Run the daemon's process, its folder, and its clients' environment.

    The process shows whether it is well. CUDA_VISIBLE_DEVICES applies twice, to the daemon and to what it shows to a
    client, which numbers it from 0. So the daemon is given UUIDs, and clients are given numbers.
    """

    def __init__(self, gpus: Sequence[str] = ()) -> None:
        """Name the GPUs that clients see, by UUID and in this order; without any, the daemon shows what it finds."""
        self._gpus = gpus
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def environment(self) -> dict[str, str]:
        """Return what a process must have in its environment to be a client; nothing before `start`."""
        if self._folder is None:
            return {}
        return _environment(self._folder) | self._visible([str(number) for number in range(len(self._gpus))])

    def start(self) -> None:
        """Start it, and end what daemons have left behind whose owners are gone. Raises MpsError."""
        end_leftovers()
        program = find_program(CONTROL)
        if program is None:
            raise MpsError(f"there is no {CONTROL}: install nvidia-compute-utils; {CONTAINER}")
        self._folder = _make_folder()
        with (self._folder / "output").open("wb") as output:
            try:
                # a group of its own: Ctrl-C is for the engine, and all of it can be killed
                self._process = subprocess.Popen(
                    [program, "-f"],
                    env=os.environ | _environment(self._folder) | self._visible(self._gpus),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            except OSError as error:
                self.stop()
                raise MpsError(f"{program} cannot be started: {error.strerror}") from error
        try:
            self._await_ready(program)
        except MpsError:
            self.stop()
            raise

    def terminate(self, pids: Collection[int]) -> None:
        """Have the server end these clients' work on the GPU.

        A client that is killed while it is busy takes others along. A request that the daemon does not answer in time
        is left undone.
        """
        if not self.running:
            return
        with suppress(MpsError):
            for server in self._ask("get_server_list").split():
                for pid in pids:
                    self._end_client(server, pid)

    def _end_client(self, server: str, pid: int) -> None:
        """Have a server end a client. Raises MpsError if it does not answer, not if there is no such client."""
        with suppress(RefusedError):
            self._ask(f"terminate_client {server} {pid}")

    def stop(self) -> None:
        """End it and its server, and remove its folder; safe to call at any time."""
        process, self._process = self._process, None
        folder, self._folder = self._folder, None
        if process is not None and folder is not None:
            if process.poll() is None:
                with suppress(MpsError):
                    _ask(folder, f"quit -t {_STOP_SECONDS:.0f}")
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                _log.warning("MPS did not end when it was told to: killed")
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if folder is not None:
            _end(folder)

    def _visible(self, names: Sequence[str]) -> dict[str, str]:
        return {VISIBLE: ",".join(names)} if names else {}

    def _ask(self, order: str) -> str:
        if self._folder is None:
            raise MpsError("MPS is not started")
        return _ask(self._folder, order)

    def _await_ready(self, program: str) -> None:
        """Return when it answers."""
        end = time.monotonic() + _START_SECONDS
        while True:
            assert self._process is not None
            if (code := self._process.poll()) is not None:
                raise MpsError(f"{program} ended with code {code}{self._last_words()}")
            try:
                float(self._ask("get_default_active_thread_percentage") or "nothing")
            except (MpsError, ValueError) as error:
                if time.monotonic() > end and self.running:
                    raise MpsError(f"{program} does not answer: {error}{self._last_words()}") from error
                time.sleep(_POLL_SECONDS)
            else:
                return

    def _last_words(self) -> str:
        """Return the last line that it has left, to be appended."""
        assert self._folder is not None
        for name in ("output", "log/control.log"):
            with suppress(OSError):
                if lines := (self._folder / name).read_text(errors="replace").strip().splitlines():
                    return f": {lines[-1][:200]}"
        return ""


def end_leftovers() -> None:
    """End daemons of this user whose owners have been killed, and remove their folders."""
    for folder in Path(_root()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if folder.stat().st_uid == os.getuid() and not _is_owned(folder):
                _log.warning("ending what an engine that was killed has left of MPS: %s", folder)
                _end(folder)


def _root() -> str:
    """Return the folder for temporary files. It is /tmp where its name is too long for sockets below it."""
    root = tempfile.gettempdir()
    return root if len(root) <= _LONGEST_ROOT else "/tmp"


def _make_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_root()))
    (folder / _OWNER).write_text(f"{os.getpid()} {psutil.Process().create_time()}")
    for name in ("pipe", "log"):
        (folder / name).mkdir()
    return folder


def _is_owned(folder: Path) -> bool:
    try:
        pid, created = (folder / _OWNER).read_text().split()
        return psutil.Process(int(pid)).create_time() == float(created)
    except (OSError, ValueError, psutil.NoSuchProcess):
        return False


def _end(folder: Path) -> None:
    """Kill what of MPS still uses a folder, and remove it."""
    pipes, killed = _environment(folder)[PIPES], []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name().startswith("nvidia-cuda-mps") and process.environ().get(PIPES) == pipes:
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, _STOP_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: Path) -> dict[str, str]:
    return {PIPES: str(folder / "pipe"), LOGS: str(folder / "log")}


def _ask(folder: Path, order: str) -> str:
    """Return what the control program answers to an order. Raises MpsError if it does not in time, or refuses."""
    try:
        done = subprocess.run(
            [find_program(CONTROL) or CONTROL],
            input=order + "\n",
            env=os.environ | _environment(folder),
            capture_output=True,
            text=True,
            timeout=_ORDER_SECONDS + (_STOP_SECONDS if order.startswith("quit") else 0),
        )
    except subprocess.TimeoutExpired as error:
        raise MpsError(f"no answer to {order!r}") from error
    except OSError as error:
        raise MpsError(f"{CONTROL}: {error.strerror}") from error
    if done.returncode:
        raise RefusedError((done.stderr or done.stdout).strip()[:200] or f"{order!r} ended with code {done.returncode}")
    return done.stdout.strip()
