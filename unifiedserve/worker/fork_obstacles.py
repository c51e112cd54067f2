"""Find obstacles to forking or confining a process: its further threads, and a GPU in use."""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

#: threads by name whose library has handlers of fork, which put a child right: jemalloc's, in pyarrow
READY_TO_FORK = ("jemalloc_bg_thd",)


def fork_obstacles() -> list[str]:
    """Return why a process forked from this one would not work, each in words; nothing if it would."""
    gpus = sorted({name for name in _open_files() if name.startswith("/dev/nvidia")})
    return [f"{thread} runs" for thread in further_threads(READY_TO_FORK)] + [f"{name} is open" for name in gpus]


def further_threads(harmless: Sequence[str] = ()) -> list[str]:
    """Return the threads of this process in words, without the first and `harmless` ones."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found = []
    for folder in Path("/proc/self/task").iterdir():
        task = int(folder.name)
        if task != os.getpid():
            with suppress(OSError):  # one that has ended meanwhile is in nobody's way
                comm = (folder / "comm").read_text().strip()
                if comm not in harmless:
                    found.append(f"thread {names.get(task, 'of a library')} ({comm}, {task})")
    return found


def _open_files() -> list[str]:
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that listed them is closed again
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return names
