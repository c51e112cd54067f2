"""The worker processes of one engine."""

import logging
import threading
from collections.abc import Callable, Iterable

from unifiedserve.engine.zygote import WorkerProcess, ZygoteError, shared_zygote
from unifiedserve.errors import ConfigError
from unifiedserve.worker.spec import WorkerSpec

_log = logging.getLogger(__name__)
_STOP_SECONDS = 10.0

OnExit = Callable[[str, int, int], None]  # instance, exit code, generation


class WorkerProcesses:
    """Starts worker processes, notices when one dies, and ends them."""

    def __init__(self) -> None:
        self._running: dict[str, WorkerProcess] = {}

    def start(self, specs: Iterable[WorkerSpec], generation: int, on_exit: OnExit) -> None:
        """Start a worker for each spec; `on_exit` is called from a thread when one ends that was not told to.

        Raises ConfigError if no process can be started.
        """
        for spec in specs:
            name = spec.instance.name
            self._running[name] = process = _fork(spec)
            watched = (name, process, generation, on_exit)
            threading.Thread(target=self._watch, args=watched, name="watch", daemon=True).start()

    def pids(self) -> dict[str, int]:
        """Return the process ids by instance."""
        return {name: process.pid for name, process in self._running.items()}

    def stop(self, ask: Callable[[str], None]) -> None:
        """Ask the worker of each instance to end, and kill those that do not in time."""
        ending = self._take()
        for name in ending:
            ask(name)
        for process in ending.values():
            if process.wait(_STOP_SECONDS) is None:
                process.kill()
                process.wait()

    def kill(self) -> None:
        """Kill all; returns when they have ended."""
        ending = self._take()
        for process in ending.values():
            process.kill()
        for process in ending.values():
            process.wait()

    def _take(self) -> dict[str, WorkerProcess]:
        """Take those that run, whose end is nobody's surprise from now on."""
        running, self._running = self._running, {}
        return running

    def _watch(self, name: str, process: WorkerProcess, generation: int, on_exit: OnExit) -> None:
        code = process.wait()
        if code is not None and self._running.get(name) is process:
            _log.error("worker %s ended with code %d", name, code)
            on_exit(name, code, generation)


def _fork(spec: WorkerSpec) -> WorkerProcess:
    try:
        return shared_zygote().fork(spec)
    except ZygoteError as error:
        raise ConfigError(str(error)) from error
