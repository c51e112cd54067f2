"""Writes of several ranks happen on all of them in one order, whatever the schedule, and each gets its columns."""

import random
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
import pytest
from greenlet import getcurrent, greenlet

from ipc_buffers import CollectiveWriteQueue, MessageQueue, PagedBuffer, PageIndex, PagePool, columns

RANKS = 4
WRITES = 2  # of each rank
ROOM = 2  # messages in a queue
SECONDS = 60.0

Part = tuple[int, int, int]  # which rank's write, its number there, and whose part of it


class Schedule:
    """Threads that take turns at random: each goes on until it must wait, or lets the others go first."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._waits: dict[greenlet, Callable[[], bool]] = {}

    def start(self, act: Callable[[], object]) -> None:
        thread = greenlet(act)
        self._waits[thread] = lambda: True

    def wait(self, until: Callable[[], bool]) -> None:
        """Let others go on; called by a thread."""
        self._waits[getcurrent()] = until
        while True:
            getcurrent().parent.switch()
            if until():
                return

    def run(self) -> None:
        """Run all to their ends; fails if none can go on."""
        while self._waits:
            able = [thread for thread, until in self._waits.items() if until()]
            assert able, "nobody can go on"
            thread = self._random.choice(able)
            thread.switch()
            if thread.dead:
                del self._waits[thread]


class VirtualQueue:
    """A bounded queue between such threads."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._messages: deque[bytes] = deque()

    def send(self, message: bytes) -> None:
        self._schedule.wait(lambda: len(self._messages) < ROOM)
        self._messages.append(message)

    def receive(self, timeout: float | None) -> bytes | None:
        self._schedule.wait(lambda: bool(self._messages))
        return self._messages.popleft()


class VirtualScatter:
    """What a collective does: the nth call of all ranks is one operation, which begins when its root comes."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._roots: dict[int, int] = {}
        self._given: dict[int, tuple[int, int]] = {}
        self._calls = [0] * RANKS

    def of(self, rank: int) -> Callable[[int, bytes, tuple[int, int] | None], Part]:
        def scatter(root: int, where: bytes, rows: tuple[int, int] | None) -> Part:
            call = self._calls[rank]
            self._calls[rank] += 1
            assert self._roots.setdefault(call, root) == root, "ranks are in different operations"
            if rows is not None:
                self._given[call] = rows
            self._schedule.wait(lambda: call in self._given)
            return (*self._given[call], rank)

        return scatter


def written_by(seed: int) -> list[list[tuple[bytes, Part]]]:
    """Return what each rank has written, in order, after a schedule at random."""
    schedule = Schedule(seed)
    requests, scatter = VirtualQueue(schedule), VirtualScatter(schedule)
    orders = [VirtualQueue(schedule) for _ in range(RANKS)]
    written: list[list[tuple[bytes, Part]]] = [[] for _ in range(RANKS)]

    def end_of(rank: int) -> CollectiveWriteQueue[tuple[int, int], Part]:
        def write(where: bytes, part: Part) -> None:
            written[rank].append((where, part))

        return CollectiveWriteQueue(rank, requests, orders, scatter.of(rank), write)

    queues = [end_of(rank) for rank in range(RANKS)]

    def produce(rank: int) -> None:
        for number in range(WRITES):
            queues[rank].put(f"{rank}.{number}".encode(), (rank, number))

    def repeat(act: Callable[[], object]) -> None:
        for _ in range(RANKS * WRITES):
            act()

    for rank, queue in enumerate(queues):
        schedule.start(lambda rank=rank: produce(rank))
        schedule.start(lambda queue=queue: repeat(queue.write_next))
    schedule.start(lambda: repeat(queues[0].give_order))
    schedule.run()
    return written


@pytest.mark.parametrize("schedules", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_all_ranks_write_in_one_order_under_any_schedule(schedules: int) -> None:
    orders = set()
    for seed in range(schedules):
        written = written_by(seed)
        order = [where for where, _ in written[0]]
        expected = [[(where, (*map(int, where.split(b".")), rank)) for where in order] for rank in range(RANKS)]
        assert written == expected
        for rank in range(RANKS):  # none is lost, and a producer's keep their order
            own = [where for where in order if where.startswith(b"%d." % rank)]
            assert own == [b"%d.%d" % (rank, number) for number in range(WRITES)]
        orders.add(tuple(order))
    assert len(orders) > schedules // 10  # the schedules are different ones


def test_columns() -> None:
    assert [columns(12, rank, 3) for rank in range(3)] == [slice(0, 4), slice(4, 8), slice(8, 12)]
    with pytest.raises(ValueError, match="10 columns cannot be divided among 4 ranks"):
        columns(10, 0, 4)


@pytest.fixture
def shared() -> Iterator[tuple[PagePool, MessageQueue, list[MessageQueue]]]:
    """Return pages, and queues of which nobody else can know."""
    name = f"test-writes-{uuid.uuid4().hex[:12]}"
    with ExitStack() as stack:
        pool = PagePool.create(name, 64, 128)
        stack.callback(pool.unlink)
        queues = [MessageQueue.create(f"{name}-{number}", 4096) for number in range(RANKS + 1)]
        for queue in queues:
            stack.callback(queue.unlink)
        yield pool, queues[0], queues[1:]


def test_in_shared_memory_parts_are_where_their_rows_were_put(
    shared: tuple[PagePool, MessageQueue, list[MessageQueue]],
) -> None:
    """Producers fill pages; each rank is told in one order where its columns are, and nothing is copied."""
    pool, requests, orders = shared
    buffer = PagedBuffer(pool, 32)
    pages = np.from_dlpack(pool.memory).reshape(64, 4, 32)
    written: list[list[tuple[int, npt.NDArray[np.uint8]]]] = [[] for _ in range(RANKS)]

    def end_of(rank: int) -> CollectiveWriteQueue[None, None]:
        def write(where: bytes, part: None) -> None:
            written[rank].append((where[0], pages[where[0], :, columns(32, rank, RANKS)]))

        return CollectiveWriteQueue(rank, requests, orders, lambda root, where, rows: None, write)

    queues = [end_of(rank) for rank in range(RANKS)]

    def produce(rank: int) -> None:
        for number in range(8):
            taken = pool.allocate(1, rank + 1, 1)
            assert taken is not None
            rows = np.full((4, 32), rank * 8 + number, np.uint8) + np.arange(32, dtype=np.uint8)
            buffer.write(PageIndex.build([[(int(taken[0]), 4)]]), rows)
            queues[rank].put(bytes([int(taken[0])]), None)

    def repeat(act: Callable[[float], bool]) -> None:
        assert all(act(SECONDS) for _ in range(8 * RANKS))

    acts = [lambda rank=rank: produce(rank) for rank in range(RANKS)]
    acts += [lambda queue=queue: repeat(queue.write_next) for queue in queues]
    threads = [threading.Thread(target=act) for act in [*acts, lambda: repeat(queues[0].give_order)]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    order = [page for page, _ in written[0]]
    assert len(set(order)) == 8 * RANKS
    for own in written:
        assert [page for page, _ in own] == order
    for parts in zip(*written, strict=True):
        whole = np.concatenate([part for _, part in parts], axis=1)
        assert np.array_equal(whole, pages[parts[0][0]])
        assert all(np.shares_memory(part, pages) for _, part in parts)
