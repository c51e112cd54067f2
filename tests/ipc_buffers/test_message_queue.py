from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from ipc_processes import MakeQueue, StartWorker
from ipc_workers import unseal

from ipc_buffers import ArenaError, MessageQueue, MessageTooLarge


def test_messages_arrive_whole_and_in_order(make_queue: MakeQueue) -> None:
    queue = make_queue(1 << 12)
    messages: list[bytes | bytearray | memoryview] = [b"", b"a", bytearray(b"abc"), memoryview(bytes(1024))]
    for message in messages:
        queue.send(message)
    assert queue.pending() == 4
    other = MessageQueue.attach(queue.name)
    assert [other.receive() for _ in messages] == [bytes(message) for message in messages]
    assert other.receive(timeout=0) is None
    assert other.receive(timeout=0.01) is None
    assert queue.pending() == 0


def test_receive_many_takes_what_is_there(make_queue: MakeQueue) -> None:
    queue = make_queue(1 << 12)
    assert queue.receive_many(3, timeout=0) == []
    for number in range(5):
        queue.send(bytes([number]))
    assert queue.receive_many(3) == [b"\0", b"\1", b"\2"]
    assert queue.receive_many(3) == [b"\3", b"\4"]
    with pytest.raises(ValueError, match="limit"):
        queue.receive_many(0)


def test_messages_too_large(make_queue: MakeQueue) -> None:
    queue = make_queue(1 << 12)
    assert queue.max_message == 1 << 10
    queue.send(bytes(1 << 10))
    with pytest.raises(MessageTooLarge, match=r"1025 bytes.*up to 1024"):
        queue.send(bytes(1025))
    assert queue.pending() == 1


@pytest.mark.parametrize("message", ["text", 5, None, memoryview(bytes(16))[::2]])
def test_messages_are_bytes(make_queue: MakeQueue, message: object) -> None:
    with pytest.raises((TypeError, BufferError)):
        make_queue(1 << 12).send(message)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_bad_timeouts(make_queue: MakeQueue, timeout: float) -> None:
    queue = make_queue(64)
    with pytest.raises(ValueError, match="timeout"):
        queue.receive(timeout)
    assert queue.receive(0) is None


@pytest.mark.parametrize("capacity", [-1, 0, 63, 1 << 41])
def test_bad_capacities(capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        MessageQueue.create(f"test-{os.getpid()}-capacity", capacity)


def test_a_full_queue_makes_its_senders_wait(make_queue: MakeQueue) -> None:
    queue = make_queue(64)
    for number in range(4):
        queue.send(bytes([number]), timeout=0)
    with pytest.raises(TimeoutError, match="full"):
        queue.send(b"x", timeout=0)
    with pytest.raises(TimeoutError, match="full"):
        queue.send(b"x", timeout=0.01)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(queue.send, b"x")
        assert [queue.receive() for _ in range(5)] == [b"\0", b"\1", b"\2", b"\3", b"x"]
        waiting.result()


def test_a_message_wakes_a_receiver(make_queue: MakeQueue) -> None:
    queue = make_queue(64)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(queue.receive)
        queue.send(b"x")
        assert waiting.result() == b"x"
        waiting_for_many = threads.submit(queue.receive_many, 5, 1e300)
        queue.send(b"y")
        assert waiting_for_many.result() == [b"y"]


def test_waiting_takes_no_processor_time(make_queue: MakeQueue) -> None:
    queue = make_queue(1 << 12)
    before = time.thread_time()
    assert queue.receive(timeout=1) is None
    assert time.thread_time() - before < 0.02


def test_closing_ends_the_wait_of_other_threads(make_queue: MakeQueue) -> None:
    queue = make_queue(64)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(queue.receive)
        queue.close()
        with pytest.raises(ArenaError, match="closed"):
            waiting.result()


def test_a_torn_length_is_found(make_queue: MakeQueue) -> None:
    queue = make_queue(1 << 12)
    queue.send(b"x")
    with open(f"/dev/shm/unifiedserve-{queue.name}", "r+b") as segment:
        content = bytearray(segment.read())
        content[content.rindex(b"x") - 8 : content.rindex(b"x")] = b"\xff" * 8
        segment.seek(0)
        segment.write(content)
    with pytest.raises(ArenaError, match="damaged"):
        queue.receive()
    with pytest.raises(ArenaError, match="damaged"):
        queue.pending()


def test_each_senders_messages_arrive_once_and_in_order(make_queue: MakeQueue, start: StartWorker) -> None:
    queue = make_queue(1 << 13)
    count = 3_000
    senders = [start("send_messages", queue.name, sender, count, 400) for sender in range(4)]
    numbers: dict[int, int] = dict.fromkeys(range(4), 0)
    while sum(numbers.values()) < 4 * count:
        for message in queue.receive_many(50):
            sender, number = unseal(message)
            assert number == numbers[sender]
            numbers[sender] += 1
    for sender in senders:
        sender.finish()
    assert queue.pending() == 0


@pytest.mark.parametrize("limit", [0, 7])
def test_several_receivers_share_the_messages(make_queue: MakeQueue, start: StartWorker, limit: int) -> None:
    queue = make_queue(1 << 13)
    count = 1_000
    senders = [start("send_messages", queue.name, sender, count, 400) for sender in range(2)]
    receivers = [start("receive_messages", queue.name, limit) for _ in range(2)]
    with ThreadPoolExecutor() as threads:
        answers = [threads.submit(receiver.finish) for receiver in receivers]
        for sender in senders:
            sender.finish()
        for _ in receivers:
            # Alone in the queue, so that a batch holds one end at most.
            while queue.pending():
                os.sched_yield()
            queue.send(b"")
        received = [line for answer in answers for line in answer.result()]
    assert sorted(received) == sorted(f"{sender}:{number}" for sender in range(2) for number in range(count))


def test_killed_senders_leave_no_half_message(make_queue: MakeQueue, start: StartWorker) -> None:
    """Most of a sender's time goes into copying 1 MiB under the lock, so that many of them die there."""
    queue = make_queue(1 << 22)
    chance = random.Random(3)
    survivor = start("send_messages", queue.name, 0, 0, 1 << 19)
    expected = {0: 0}
    for victim_number in range(1, 15):
        victim = start("send_messages", queue.name, victim_number, 0, (1 << 20) - 16)
        expected[victim_number] = 0
        enough = chance.randint(1, 30)
        while expected[victim_number] < enough:
            sender, number = unseal(queue.receive() or b"")
            assert number == expected[sender]
            expected[sender] += 1
        victim.kill()
    after_the_last_kill = expected[0] + 20
    while expected[0] < after_the_last_kill:
        sender, number = unseal(queue.receive() or b"")
        assert number == expected[sender]
        expected[sender] += 1
    survivor.kill()
    while message := queue.receive(timeout=0):
        unseal(message)
    queue.send(b"still works")
    assert queue.receive() == b"still works"


def test_a_killed_receiver_loses_at_most_what_it_had_taken(make_queue: MakeQueue, start: StartWorker) -> None:
    queue = make_queue(1 << 21)
    start("send_messages", queue.name, 9, 0, (1 << 19) - 16)
    chance = random.Random(4)
    last = -1
    for _ in range(8):
        victim = start("receive_messages", queue.name, 0)
        for _ in range(chance.randint(1, 30)):
            number = int(victim.read_line().removeprefix("9:"))
            assert number in (last + 1, last + 2) if last >= 0 else number == 0
            last = number
        victim.process.kill()
        for line in victim.process.stdout:
            last = int(line.strip().removeprefix("9:"))
        victim.process.wait()
    assert unseal(queue.receive() or b"")[1] in (last + 1, last + 2)


def test_a_long_conversation(make_queue: MakeQueue, start: StartWorker) -> None:
    requests, answers = make_queue(256), make_queue(256)
    worker = start("echo", requests.name, answers.name)
    chance = random.Random(1)
    for number in range(5_000):
        message = number.to_bytes(4, "little") + bytes(chance.randint(0, 60))
        requests.send(message)
        assert answers.receive() == message
    requests.send(b"")
    worker.finish()


@pytest.mark.parametrize("function", ["wait_for_message", "wait_for_room"])
def test_ctrl_c_ends_a_wait(make_queue: MakeQueue, start: StartWorker, function: str) -> None:
    queue = make_queue(64)
    for _ in range(4 if function == "wait_for_room" else 0):
        queue.send(b"x")
    worker = start(function, queue.name)
    assert worker.read_line() == "waiting"
    worker.process.send_signal(signal.SIGINT)
    assert worker.read_line() == "interrupted"


def test_a_signal_handler_runs_and_the_wait_goes_on(make_queue: MakeQueue) -> None:
    queue = make_queue(64)
    previous = signal.signal(signal.SIGUSR1, lambda *_: queue.send(b"from the handler"))
    try:
        timer = threading.Timer(0.01, signal.pthread_kill, [threading.main_thread().ident, signal.SIGUSR1])
        timer.start()
        assert queue.receive() == b"from the handler"
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_a_waiting_daemon_thread_does_not_hinder_exit(make_queue: MakeQueue, start: StartWorker) -> None:
    assert start("exit_with_waiting_thread", make_queue(64).name).finish() == ["exiting"]


class QueueMachine(RuleBasedStateMachine):
    """The queue, through two handles, against a deque and the documented space a message takes."""

    CAPACITY = 200

    def __init__(self) -> None:
        super().__init__()
        queue = MessageQueue.create(f"test-{os.getpid()}-machine", self.CAPACITY)
        self.queues = [queue, MessageQueue.attach(queue.name)]
        self.messages: deque[bytes] = deque()

    def teardown(self) -> None:
        self.queues[0].unlink()

    @rule(handle=st.integers(0, 1), message=st.binary(max_size=60))
    def send(self, handle: int, message: bytes) -> None:
        def space(length: int) -> int:
            return 8 + (length + 7) // 8 * 8

        used = sum(space(len(waiting)) for waiting in self.messages)
        if len(message) > self.CAPACITY // 4:
            with pytest.raises(MessageTooLarge):
                self.queues[handle].send(message, timeout=0)
        elif used + space(len(message)) > self.CAPACITY:
            with pytest.raises(TimeoutError):
                self.queues[handle].send(message, timeout=0)
        else:
            self.queues[handle].send(message, timeout=0)
            self.messages.append(message)

    @rule(handle=st.integers(0, 1))
    def receive(self, handle: int) -> None:
        expected = self.messages.popleft() if self.messages else None
        assert self.queues[handle].receive(timeout=0) == expected

    @rule(handle=st.integers(0, 1), limit=st.integers(1, 5))
    def receive_many(self, handle: int, limit: int) -> None:
        expected = [self.messages.popleft() for _ in range(min(limit, len(self.messages)))]
        assert self.queues[handle].receive_many(limit, timeout=0) == expected

    @invariant()
    def agrees(self) -> None:
        assert [queue.pending() for queue in self.queues] == [len(self.messages)] * 2


QueueMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestQueueMachine = QueueMachine.TestCase
