"""Share the instances' status without messages: a few numbers in shared memory."""

from collections.abc import Sequence

from ipc_buffers import Arena
from unifiedserve.messages.ticket import Place
from unifiedserve.placement import FIRST_MEMORY, Stage

_STAGES = list(Stage)
_WORKING, _WAITING, _JOINING, _SHARE, _TBT, _ENCODED = range(6)
_COLUMNS = 6
_PRESENT = (_WORKING, _WAITING, _JOINING, _SHARE, _TBT)  # what is of now alone
_PRIORITY, _TURN = range(2)
_PLACE = 2  # numbers of a place
_ITEM_BYTES = 8
_MILLIONTHS = 1_000_000
_LATEST = 1e12  # seconds: a request that is owed nothing has its turn at the end of time
_LATER = 1  # microseconds after its turn: attempts at one request have one place, and must not wait for each other
_NONE = 0  # no turn: the clock has left zero behind long ago


class Status:
    """Hold one row a stage of an instance.

    It tells whether the stage has work for the cores, how many requests it has yet to bring to their end, and whether
    it is working right now. Decode tells the share of their budgets that other stages may take (until then all of it),
    and the time between tokens for which that is so.

    Behind the rows there are as many pages of patches as one instance has given another one to encode; the encoder
    tells how many of them are done. Behind these there are, for each stage of an instance and each memory, the most
    pages of the stage's buffer that were in use, and the place in the order of service of the first request that waits
    for some.

    A row is written by its instance alone, an aligned number at a time, so all read without locks. The buffer of a
    stage is the one it takes pages from: patch for vision, visual for encode, KV for the others.
    """

    def __init__(self, arena: Arena, instances: Sequence[str], memories: Sequence[str] = (FIRST_MEMORY,)) -> None:
        self.arena = arena
        self._numbers = arena.buffer().cast("q")
        self._instances = list(instances)
        self._memories = list(memories)

    @staticmethod
    def create(name: str, instances: Sequence[str], memories: Sequence[str] = (FIRST_MEMORY,)) -> Arena:
        """Create the arena; raises as `Arena.create`."""
        rows = len(instances) * len(_STAGES)
        by_memory = rows * len(memories) * (1 + _PLACE)
        return Arena.create(name, (rows * _COLUMNS + len(instances) ** 2 + by_memory) * _ITEM_BYTES)

    def set_working(self, instance: str, stage: Stage, working: bool) -> None:
        self._numbers[self._index(instance, stage, _WORKING)] = working

    def working(self, instance: str, stage: Stage) -> bool:
        return self._numbers[self._index(instance, stage, _WORKING)] != 0

    def set_waiting(self, instance: str, requests: int, joining: bool) -> None:
        """Tell how many requests, wherever they are, have yet to leave prefill; `joining`: some do very soon."""
        self._numbers[self._index(instance, Stage.PREFILL, _WAITING)] = requests
        self._numbers[self._index(instance, Stage.PREFILL, _JOINING)] = joining

    def waiting(self, instance: str) -> int:
        return self._numbers[self._index(instance, Stage.PREFILL, _WAITING)]

    def joining(self, instance: str) -> bool:
        return self._numbers[self._index(instance, Stage.PREFILL, _JOINING)] != 0

    def set_share(self, instance: str, share: float, tbt: float) -> None:
        """Tell the share in (0, 1] and the time between tokens.

        The time is the 99th percentile in seconds (0: unknown).
        """
        self._numbers[self._index(instance, Stage.DECODE, _SHARE)] = round(share * _MILLIONTHS)
        self._numbers[self._index(instance, Stage.DECODE, _TBT)] = round(tbt * _MILLIONTHS)

    def share(self, instance: str) -> float:
        return self._numbers[self._index(instance, Stage.DECODE, _SHARE)] / _MILLIONTHS or 1.0

    @property
    def held(self) -> tuple[float, float]:
        """Return the least share that any instance tells, and the longest time between tokens."""
        tbts = [self._numbers[self._index(each, Stage.DECODE, _TBT)] / _MILLIONTHS for each in self._instances]
        return min(map(self.share, self._instances)), max(tbts)

    def set_first(self, instance: str, stage: Stage, memory: str, place: Place | None) -> None:
        """Tell the place (priority, turn in monotonic seconds) of the first that waits for the stage's pages there."""
        priority, turn = place or (0, 0.0)
        index = self._place(instance, stage, memory)
        self._numbers[index + _PRIORITY] = priority
        self._numbers[index + _TURN] = round(min(turn, _LATEST) * _MILLIONTHS) + _LATER if place else _NONE

    def first(self, instance: str, stage: Stage, memory: str) -> Place | None:
        """Return the first that waits for the stage's pages of a memory, as told. None if nobody does."""
        index = self._place(instance, stage, memory)
        priority, turn = self._numbers[index + _PRIORITY], self._numbers[index + _TURN]
        return None if turn == _NONE else (priority, turn / _MILLIONTHS)

    def give(self, sender: str, receiver: str, patch_pages: int) -> None:
        """Tell that an instance has given another one so many pages of patches to encode."""
        self._numbers[self._given(sender, receiver)] += patch_pages

    def encoded(self, instance: str, patch_pages: int) -> None:
        """Tell that so many pages of patches given to an instance are done.

        They are encoded, or not wanted any more.
        """
        self._numbers[self._index(instance, Stage.ENCODE, _ENCODED)] += patch_pages

    def least_pending(self, encoders: Sequence[str]) -> str:
        """Return the instance with the fewest patch pages to encode, the first of equals."""
        return encoders[0] if len(encoders) == 1 else min(encoders, key=self._pending)

    def used(self, instance: str, stage: Stage, pages: int, memory: str) -> None:
        """Tell how many pages of the stage's buffer in a memory are in use now."""
        index = self._peak(instance, stage, memory)
        if pages > self._numbers[index]:
            self._numbers[index] = pages

    def peak(self, stage: Stage, memory: str) -> int:
        """Return the most pages of the stage's buffer in a memory that were in use."""
        return max(self._numbers[self._peak(instance, stage, memory)] for instance in self._instances)

    def leave(self, instance: str) -> None:
        """Have an instance tell nothing any more.

        Its worker has ended, and the next one may host other stages. The numbers of pages that it was given and has
        encoded, and that it used at most, stay.
        """
        for stage in _STAGES:
            for column in _PRESENT:
                self._numbers[self._index(instance, stage, column)] = 0
            for memory in self._memories:
                self.set_first(instance, stage, memory, None)

    def owes_nothing(self, instance: str) -> None:
        """Have an instance whose worker has died have nothing to encode. Nobody gives it anything any more."""
        self._numbers[self._index(instance, Stage.ENCODE, _ENCODED)] = self._given_to(instance)

    def _pending(self, encoder: str) -> int:
        return self._given_to(encoder) - self._numbers[self._index(encoder, Stage.ENCODE, _ENCODED)]

    def _given_to(self, encoder: str) -> int:
        return sum(self._numbers[self._given(sender, encoder)] for sender in self._instances)

    def _given(self, sender: str, receiver: str) -> int:
        rows = len(self._instances) * len(_STAGES) * _COLUMNS
        return rows + self._instances.index(sender) * len(self._instances) + self._instances.index(receiver)

    def _peak(self, instance: str, stage: Stage, memory: str) -> int:
        before = len(self._instances) * (len(_STAGES) * _COLUMNS + len(self._instances))
        return before + self._of_memory(instance, stage, memory)

    def _place(self, instance: str, stage: Stage, memory: str) -> int:
        before = len(self._instances) * (len(_STAGES) * (_COLUMNS + len(self._memories)) + len(self._instances))
        return before + _PLACE * self._of_memory(instance, stage, memory)

    def _of_memory(self, instance: str, stage: Stage, memory: str) -> int:
        row = self._instances.index(instance) * len(_STAGES) + _STAGES.index(stage)
        return row * len(self._memories) + self._memories.index(memory)

    def _index(self, instance: str, stage: Stage, column: int) -> int:
        return (self._instances.index(instance) * len(_STAGES) + _STAGES.index(stage)) * _COLUMNS + column
