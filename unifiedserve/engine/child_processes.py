"""List the processes that a worker has started: its other ranks, and compilers."""

from contextlib import suppress
from pathlib import Path

_OURS = "us:"  # begins the names of our processes


def children_of(pid: int) -> list[int]:
    """Return the processes that the first thread of one has started."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended, or the kernel does not tell
        return []


def ranks_of(pid: int) -> list[int]:
    """Return the worker's other ranks that live."""
    ranks = []
    for child in children_of(pid):
        with suppress(OSError):  # it has ended
            if Path(f"/proc/{child}/comm").read_text().startswith(_OURS):
                ranks.append(child)
    return ranks
