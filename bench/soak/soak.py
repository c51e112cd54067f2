"""A daemon under a mixed load for hours, one of whose workers is killed every few minutes."""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil
from rich.progress import Progress

from bench.campaign.daemon import drained, served, target_at
from bench.soak.kills import Killer
from bench.soak.load import Clients, errors
from bench.soak.report import Soak
from bench.soak.vitals import Vitals
from ipc_buffers import list_arenas
from unifiedserve.cli.daemon import Daemon
from unifiedserve.doctor.machine import describe_machine

_END_SECONDS = 15.0  # in which processes and segments must go


class Options(NamedTuple):
    """How long a soak takes, how often a worker dies (seconds), who asks, and options of the daemon."""

    seconds: float
    every: float
    clients: int
    thinking: float
    seed: int
    serve: tuple[str, ...]


async def run(options: Options) -> Soak:
    """Run a soak."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with served(log, *options.serve) as daemon:
            processes = [
                psutil.Process(daemon.process.pid),
                *psutil.Process(daemon.process.pid).children(recursive=True),
            ]
            soak = await _soak(daemon, options)
    segments = [arena.name for arena in list_arenas() if f"{daemon.process.pid}-" in arena.name]
    soak.remains = [*await _remaining(processes), *segments]
    return soak


async def _soak(daemon: Daemon, options: Options) -> Soak:
    pid = daemon.process.pid
    async with target_at(daemon.url) as target:
        clients = Clients(daemon.url, options.seed, options.thinking)
        vitals, killer = Vitals(pid, target), Killer(pid, target, options.seed, options.every)
        await clients.learn()
        began = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.seconds), asyncio.TaskGroup() as tasks:
                for work in (clients.run(options.clients), vitals.run(), killer.run(), _watch(daemon)):
                    tasks.create_task(work)
                tasks.create_task(_show(options.seconds, clients, killer))
        ended = time.monotonic()
        left = await drained(target)
    command = " ".join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    return Soak(command, describe_machine(), began, ended, clients.asked, killer.kills, vitals.looks, left, [])


async def _watch(daemon: Daemon) -> None:
    """Return never. Raises RuntimeError if the daemon ends."""
    while daemon.process.poll() is None:
        await asyncio.sleep(1)
    raise RuntimeError(f"the daemon has ended with code {daemon.process.returncode}")


async def _show(seconds: float, clients: Clients, killer: Killer) -> None:
    """Show how far it is, for ever."""
    with Progress(transient=True) as progress:
        task = progress.add_task("", total=seconds)
        while True:
            known = f"{len(clients.asked):,} requests, {len(killer.kills)} kills, {len(errors(clients.asked))} errors"
            progress.update(task, completed=progress.tasks[task].elapsed, description=known)
            await asyncio.sleep(1)


async def _remaining(processes: list[psutil.Process]) -> list[str]:
    """Return which of the processes live on."""
    end = time.monotonic() + _END_SECONDS
    while (alive := [each for each in processes if each.is_running()]) and time.monotonic() < end:
        await asyncio.sleep(0.1)
    return [f"process {each.pid}" for each in alive]
