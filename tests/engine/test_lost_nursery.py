"""What reads media for a running engine may die or be stopped: the next image is answered as the last one."""

import os
import signal
from typing import Any

import psutil
import pytest
from completions import tokens
from daemon import Daemon
from media import image_part, make_image, text_part

from ipc_buffers import list_arenas


def nursery_of(daemon: Daemon) -> psutil.Process:
    assert daemon.engine._running is not None
    return psutil.Process(daemon.engine._running.workers.nursery.start())


def answer(daemon: Daemon) -> Any:
    answered = tokens(daemon, image_part(make_image(1, 60, 90)), text_part("What is this?"))
    daemon.wait_idle()
    return answered


@pytest.mark.daemon("what reads its images dies", no_prefix_cache=True, visual_cache_mib=0)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_the_next_image_is_answered(daemon: Daemon, number: signal.Signals) -> None:
    expected, arenas, workers = answer(daemon), list_of_arenas(), daemon.engine.observation.worker_pids()
    nursery = nursery_of(daemon)
    readers = nursery.children()
    assert readers
    nursery.send_signal(number)
    for reader in readers:
        reader.kill()
    psutil.wait_procs(readers)
    assert answer(daemon) == expected
    assert nursery_of(daemon) != nursery
    assert not any(process.is_running() for process in (nursery, *readers))
    assert daemon.engine.observation.worker_pids() == workers
    assert list_of_arenas() == arenas


def list_of_arenas() -> list[str]:
    return sorted(arena.name for arena in list_arenas() if arena.pid == os.getpid())
