"""Report transfers that fail before anything of them begins."""

from ipc_buffers import Bell
from unifiedserve.carriers.base import Done


class Failures:
    """Keep transfers that have failed at once. Their numbers are negative, as nobody else's are."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._done: list[Done] = []
        self._last = 0

    def add(self, error: str) -> int:
        """Have it told by the next `take`, and return its number."""
        self._last -= 1
        self._done.append(Done(self._last, error, 0, 0.0))
        self._bell.ring()
        return self._last

    def take(self) -> list[Done]:
        """Return those that were added since the last call."""
        done, self._done = self._done, []
        return done

    def forget(self, transfer: int) -> None:
        """Do not tell of one."""
        self._done = [done for done in self._done if done.transfer != transfer]
