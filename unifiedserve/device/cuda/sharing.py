"""Share a GPU between workers: at once, as clients of an MPS daemon of the engine's own, or in turn."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection

import torch

from unifiedserve.config import EngineConfig
from unifiedserve.device.cuda.mps_daemon import PIPES, VISIBLE, MpsDaemon, MpsError
from unifiedserve.device.cuda.support import number_of, visible_uuids
from unifiedserve.errors import ConfigError
from unifiedserve.placement import Instance

_log = logging.getLogger(__name__)
PRIORITY, THREADS = "CUDA_MPS_CLIENT_PRIORITY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
#: a folder for pipes that there is not and nobody can make: no daemon is joined, be there one of the system's
NO_PIPES = "/proc/no-mps"


class TimeSlices:
    """Let the GPU's scheduler give workers turns. None rests for others: steps are short, and budgets are held."""

    rests = False

    @property
    def apart(self) -> bool:
        """Tell that it does: each process has a context of its own."""
        return True

    def start(self) -> None:
        """Do nothing."""

    def environment(self, instance: Instance, place: str) -> dict[str, str]:
        return {PIPES: NO_PIPES} | own_first(place, visible_uuids)

    def terminate(self, pids: Collection[int]) -> None:
        """Do nothing: a process that is killed leaves the others alone."""

    def stop(self) -> None:
        """Do nothing."""

    def enter(self, instance: Instance, threads: int) -> None:
        torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
        torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32, or tokens are not the processor's
        torch.backends.cudnn.allow_tf32 = False

    def give_way(self, giving: bool) -> None:
        """Do nothing: budgets decide the part of others."""


class Mps(TimeSlices):
    """Make workers clients of a daemon. Where there can be none they get time slices, unless it was asked for."""

    def __init__(self, config: EngineConfig) -> None:
        self._required = config.machine.share == "mps"
        self._threads = config.machine.threads_of
        self._memory = config.machine.memory_limits_of
        self._daemon: MpsDaemon | None = None

    @property
    def apart(self) -> bool:
        """Tell whether no daemon serves the workers: a fault of one of its clients ends all."""
        return self._daemon is None

    def start(self) -> None:
        """Start the daemon, a new one if there was one already. Raises ConfigError if MPS is required and cannot be."""
        self.stop()
        daemon = MpsDaemon(visible_uuids())
        try:
            daemon.start()
        except MpsError as error:
            if self._required:
                raise ConfigError(f"--share mps: {error}") from error
            _log.warning("workers take turns on the GPU, as MPS cannot be used: %s", error)
        else:
            self._daemon = daemon

    def environment(self, instance: Instance, place: str) -> dict[str, str]:
        if self._daemon is None:
            return super().environment(instance, place)
        shown = self._daemon.environment
        environment = shown | {PRIORITY: str(instance.client_priority)}
        environment |= own_first(place, lambda: shown[VISIBLE].split(","))
        if percent := self._threads.get(instance.name):
            environment[THREADS] = str(percent)
        if mib := self._memory.get(instance.name):
            numbers = sorted({0, number_of(place)})  # of its GPU, as it sees them and as the daemon does
            environment[MEMORY] = ",".join(f"{number}={mib}M" for number in numbers)
        return environment

    def terminate(self, pids: Collection[int]) -> None:
        if self._daemon is not None:
            self._daemon.terminate(pids)

    def stop(self) -> None:
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            daemon.stop()


def own_first(place: str, visible: Callable[[], list[str]]) -> dict[str, str]:
    """Return the variable that shows a worker its own GPU first. Behind it come the others in their order.

    So a worker computes on `cuda:0` whichever GPU that is, in all of its threads, and whatever library forgets to ask.
    """
    if not (number := number_of(place)):
        return {}
    names = visible()
    return {VISIBLE: ",".join([names[number], *names[:number], *names[number + 1 :]])}


def seen_as(place: str, own: str) -> str:
    """Return how a worker with a GPU of its `own` knows that of a place.

    Both are as the engine knows them.
    """
    number, first = number_of(place), number_of(own)
    return f"cuda:{0 if number == first else number + (number < first)}"


def stay_outside() -> None:
    """Keep this process from becoming a client of whatever MPS daemon there is: a fault there must not reach it."""
    os.environ[PIPES] = NO_PIPES
