"""Find processes that a signal has stopped. They answer nobody, unlike processes that take long."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOOK_SECONDS = 1.0  # between two looks


def is_stopped(pid: int) -> bool:
    """Tell whether a signal has stopped a process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


@contextmanager
def killed_if_stopped(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Kill a child that a signal stops while the block waits for it."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_LOOK_SECONDS):
            if is_stopped(child.pid):
                child.kill()

    thread = threading.Thread(target=watch, name="watch child", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
