"""Pass media through a window of their buffers, which do not hold all at once."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from unifiedserve.messages.pages import Window
from unifiedserve.scheduling.vision import BufferPages

UnitPages = tuple[list[int], list[int]]  # of the patch buffer, and of the visual buffer


class Rolling:
    """Give a window's pages to the units of a request again and again. Units come in the order of the prompt."""

    def __init__(self, window: Window, units: Iterable[tuple[int, BufferPages]]) -> None:
        """Begin without pages; `units` are numbers, ascending, and how many pages each needs."""
        self.window = window
        self._coming = deque(sorted(units))
        self._begins: list[int] = []  # units that have pages, and are not in decoding
        self.patch: list[int] = []  # pages that no unit has
        self.visual: list[int] = []
        self._given = 0  # pages of both buffers that units have

    @property
    def given_out(self) -> bool:
        """Tell whether all units have had pages, or need none."""
        return not self._coming

    @property
    def returned(self) -> bool:
        """Tell whether no unit has a page any more."""
        return not self._given

    def take(self, patch: Sequence[int], visual: Sequence[int]) -> None:
        """Take over all pages of the window."""
        self.patch += patch
        self.visual += visual

    def take_back(self, patch: Sequence[int], visual: Sequence[int]) -> None:
        """Take over pages that the units are done with which had them."""
        self._given -= len(patch) + len(visual)
        self.take(patch, visual)

    def leave(self) -> UnitPages:
        """Return the pages that no unit has, which are the caller's from now on."""
        left = self.patch, self.visual
        self.patch, self.visual = [], []
        return left

    def recall(self, recalled: Callable[[int], bool]) -> None:
        """Leave out the next units while they are `recalled` from the cache."""
        while self._coming and recalled(self._coming[0][0]):
            self._coming.popleft()

    def give(self) -> tuple[int, UnitPages] | None:
        """Return the next unit and its pages; None if there are not enough, or no more units."""
        if not self._coming:
            return None
        unit, need = self._coming[0]
        if need.patch > len(self.patch) or need.visual > len(self.visual):
            return None
        self._coming.popleft()
        self._begins.append(unit)
        self._given += need.patch + need.visual
        return unit, (_cut(self.patch, need.patch), _cut(self.visual, need.visual))

    def begin(self) -> list[int]:
        """Return the units to decode now: enough that few frames are decoded twice, or the last ones."""
        if self._coming and len(self._begins) < self.window.half:
            return []
        units, self._begins = self._begins, []
        return units


def _cut(pages: list[int], count: int) -> list[int]:
    """Take the first `count` pages out of a list."""
    taken = pages[:count]
    del pages[:count]
    return taken
