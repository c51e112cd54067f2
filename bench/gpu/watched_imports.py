"""The zygote's imports, watched: `python -m bench.gpu.watched_imports` prints each obstacle to a fork as it appears.

Below it comes the stack of the import, or of the library's loading, that was under way.
"""

import sys
import traceback
from typing import Any

from bench.gpu import machine
from unifiedserve.worker.fork_obstacles import fork_obstacles

_WATCHED = ("import", "ctypes.dlopen", "open", "os.listdir")


class _Watch:
    """An audit hook that looks for new obstacles whenever something is imported, loaded or opened."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._last: list[str] = []
        self._looking = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _WATCHED and not self._looking:
            self.look(f"{event} {arguments[0]}")

    def look(self, event: str) -> None:
        """Print what is new since the last event, with the stack of that one."""
        self._looking = True
        for obstacle in fork_obstacles():
            name = obstacle.rpartition("(")[0] or obstacle
            if name not in self._known:
                self._known.add(name)
                print(f"obstacle: {obstacle}", *self._last, sep="\n", flush=True)
        frames = [frame for frame in traceback.extract_stack()[:-2] if not frame.filename.startswith("<frozen")]
        self._last = [f"  after {event}, called from", *(f"    {frame.filename}:{frame.lineno}" for frame in frames)]
        self._looking = False


def main() -> None:
    """Import what the zygote imports."""
    watch = _Watch()
    sys.addaudithook(watch)
    from unifiedserve.models.adapters import preload
    from unifiedserve.worker.process import prepare_interpreter

    prepare_interpreter()
    preload(machine.ROOT / "unifiedserve/bundled_model")
    watch.look("the last import")


if __name__ == "__main__":
    main()
