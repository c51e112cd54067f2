"""Run the worker processes of one engine."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from unifiedserve.engine.child_processes import ranks_of
from unifiedserve.engine.environments import with_environments
from unifiedserve.engine.zygote import WorkerProcess, ZygoteError, shared_zygote
from unifiedserve.errors import ConfigError
from unifiedserve.placement import Instance, Stage
from unifiedserve.reading.keeper import Nursery
from unifiedserve.worker.spec import WorkerSpec

_log = logging.getLogger(__name__)
_STOP_SECONDS = 10.0

OnExit = Callable[[str, int, int], None]  # instance, exit code, generation


class WorkerProcesses:
    """Start worker processes, notice when one dies, and end them."""

    def __init__(self, nursery: Nursery) -> None:
        """Lend `nursery` to the workers that decode: the sandbox leaves them none of their own."""
        self._nursery = nursery
        self._running: dict[str, WorkerProcess] = {}
        self._leaving: set[WorkerProcess] = set()  # that were asked to end

    def start(
        self,
        specs: Iterable[WorkerSpec],
        environment: Callable[[Instance, str], dict[str, str]],
        generation: int,
        on_exit: OnExit,
    ) -> None:
        """Start a worker for each spec, with additions to its environment.

        `on_exit` is called from a thread when one ends that was not told to. Raises ConfigError if no process can be
        started.
        """
        for spec in specs:
            name = spec.instance.name
            started, own = with_environments(spec, environment)
            self._running[name] = process = self._start(started, own)
            watched = (name, process, generation, on_exit)
            threading.Thread(target=self._watch, args=watched, name="watch", daemon=True).start()

    def end_one(self, name: str, ask: Callable[[str], None]) -> bool:
        """Ask one worker to end, and return whether it did as asked; else its end is told of as if it had died."""
        process = self._running[name]
        self._leaving.add(process)
        ask(name)
        if process.wait(_STOP_SECONDS) is None:
            process.kill()
        if left := process.wait() == 0:
            del self._running[name]  # first: it is nobody's surprise at any time
        self._leaving.discard(process)
        return left

    def pids(self) -> dict[str, int]:
        """Return the process ids by instance."""
        return {name: process.pid for name, process in self._running.copy().items()}  # others may start meanwhile

    def kill_one(self, name: str) -> None:
        """Kill one worker that still runs; its end is told of as if it had died by itself."""
        if process := self._running.get(name):
            process.kill()

    def stop(self, ask: Callable[[str], None], prepare: Callable[[list[int]], None]) -> None:
        """Ask the worker of each instance to end. Those that do not in time are killed, as `kill` does."""
        ending = self._take()
        for name in ending:
            ask(name)
        end = time.monotonic() + _STOP_SECONDS
        _kill([process for process in ending.values() if process.wait(max(0, end - time.monotonic())) is None], prepare)

    def kill(self, prepare: Callable[[list[int]], None]) -> None:
        """Kill all, once `prepare` has been told their process ids; returns when they have ended."""
        _kill(list(self._take().values()), prepare)

    def _start(self, spec: WorkerSpec, environment: dict[str, str]) -> WorkerProcess:
        if Stage.VISION not in spec.instance.stages:
            return _start(spec, environment)
        with self._nursery.lend() as nursery:
            return _start(spec, environment, nursery)

    def _take(self) -> dict[str, WorkerProcess]:
        """Take those that run, whose end is nobody's surprise from now on."""
        running, self._running = self._running, {}
        return running

    def _watch(self, name: str, process: WorkerProcess, generation: int, on_exit: OnExit) -> None:
        code = process.wait()
        as_asked = code == 0 and process in self._leaving
        if code is not None and not as_asked and self._running.get(name) is process:
            _log.error("worker %s ended with code %d", name, code)
            on_exit(name, code, generation)


def _kill(processes: list[WorkerProcess], prepare: Callable[[list[int]], None]) -> None:
    if living := [process for process in processes if process.wait(0) is None]:
        prepare([pid for process in living for pid in (process.pid, *ranks_of(process.pid))])
    for process in living:
        process.kill()
    for process in living:
        process.wait()


def _start(spec: WorkerSpec, environment: dict[str, str], nursery: socket.socket | None = None) -> WorkerProcess:
    with suppress(ZygoteError):  # it may have died since it was last used: another one says what is wrong
        return shared_zygote().start(spec, environment, nursery)
    try:
        return shared_zygote().start(spec, environment, nursery)
    except ZygoteError as error:
        raise ConfigError(str(error)) from error
