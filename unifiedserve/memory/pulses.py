"""Show the workers' signs of life without messages: a row of shared memory for each instance."""

from collections.abc import Collection, Sequence
from itertools import islice

from ipc_buffers import Arena

_TURNS, _WAITS, _COUNT = range(3)
_MOST_REQUESTS = 1024  # of a row; a worker with more is remembered for these
_COLUMNS = 3 + _MOST_REQUESTS
_ITEM_BYTES = 8


class Pulses:
    """Count each worker's turns, and tell its waiting for messages and its requests.

    A row is written by its worker alone, an aligned number at a time, so all read without locks.
    """

    def __init__(self, arena: Arena, instances: Sequence[str]) -> None:
        self.arena = arena
        self._numbers = arena.buffer().cast("q")
        self._starts = {instance: place * _COLUMNS for place, instance in enumerate(instances)}

    @staticmethod
    def create(name: str, instances: Collection[str]) -> Arena:
        """Create the arena; raises as `Arena.create`."""
        return Arena.create(name, max(1, len(instances)) * _COLUMNS * _ITEM_BYTES)

    def begin_turn(self, instance: str) -> None:
        """Tell that a worker has come round to its next turn."""
        start = self._starts[instance]
        self._numbers[start + _WAITS] = 0
        self._numbers[start + _TURNS] += 1

    def wait(self, instance: str) -> None:
        """Tell that a worker waits for messages, and comes round soon if there are none."""
        self._numbers[self._starts[instance] + _WAITS] = 1

    def work_on(self, instance: str, uids: Collection[int]) -> None:
        """Tell which requests a worker works on until it tells of others."""
        start = self._starts[instance]
        count = min(len(uids), _MOST_REQUESTS)
        for place, uid in enumerate(islice(uids, count), start + 1 + _COUNT):
            self._numbers[place] = uid
        self._numbers[start + _COUNT] = count

    def leave(self, instance: str) -> None:
        """Forget what a worker that has ended has told. The next one of its instance begins afresh."""
        start = self._starts[instance]
        for column in (_COUNT, _WAITS, _TURNS):
            self._numbers[start + column] = 0

    def turns(self, instance: str) -> int:
        """Return how many turns a worker has begun."""
        return self._numbers[self._starts[instance] + _TURNS]

    def waits(self, instance: str) -> bool:
        """Tell whether a worker waits for messages."""
        return self._numbers[self._starts[instance] + _WAITS] != 0

    def worked_on(self, instance: str) -> set[int]:
        """Return the requests that a worker works on, or did when it ended."""
        first = self._starts[instance] + 1 + _COUNT
        return set(self._numbers[first : first + self._numbers[first - 1]])
