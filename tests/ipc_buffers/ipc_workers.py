"""What the worker processes of these tests do: `python ipc_workers.py FUNCTION '[ARGUMENTS]'`."""

from __future__ import annotations

import json
import random
import sys
import threading
import zlib

import numpy as np

from ipc_buffers import Arena, Collective, Memory, MessageQueue, PagePool


def tell(answer: object) -> None:
    print(answer, flush=True)


def hold_arena(name: str, size: int) -> None:
    """Creates an arena and keeps running until the input is closed."""
    Arena.create(name, size)
    tell("created")
    sys.stdin.read()


def fill_arena(name: str, value: int) -> None:
    view = Arena.attach(name).buffer()
    view[:] = bytes([value]) * len(view)


def fill_memory(name: str, value: int) -> None:
    np.from_dlpack(Memory.attach(name))[:] = value


def read_memory(name: str) -> None:
    tell(np.from_dlpack(Memory.attach(name)).tobytes().hex())


def hold_file(name: str, path: str, offset: int, size: int) -> None:
    """Shows bytes of a file until it is killed."""
    memory = Memory.map_file(name, path, offset, size)
    tell("mapped")
    sys.stdin.read()
    memory.close()


def churn_pages(name: str, request: int, rounds: int) -> None:
    """Takes pages, marks them, checks that nobody else wrote to them, gives them back. 0 rounds: until killed.

    Prints a line every few rounds, and at the end how often it got pages.
    """
    pool = PagePool.attach(name)
    words = np.frombuffer(pool.data(), np.int64).reshape(pool.num_pages, -1)
    chance = random.Random(request)
    successes = 0
    done = 0
    while not rounds or done < rounds:
        done += 1
        if done % 50 == 0 and not rounds:
            tell(done)
        pages = pool.allocate(chance.randint(1, pool.num_pages // 2), request)
        if pages is None:
            continue
        successes += 1
        mark = request << 32 | done
        words[pages] = mark
        pool.retain(pages)
        assert pool.release(pages) == 0
        assert (words[pages] == mark).all(), "a page was given to two processes"
        assert pool.release(pages) == len(pages)
    tell(successes)


def recall_pages(name: str, request: int, rounds: int) -> None:
    """Writes pages, remembers and releases them, and recalls earlier ones that others may have taken meanwhile.

    Prints at the end how many pages it got back.
    """
    pool = PagePool.attach(name)
    words = np.frombuffer(pool.data(), np.int64).reshape(pool.num_pages, -1)
    chance = random.Random(request)
    known: list[tuple[int, int, int]] = []  # page, epoch, mark
    recalled = 0
    for done in range(rounds):
        pages = pool.allocate(chance.randint(1, 8), request)
        if pages is not None:
            mark = request << 32 | done
            words[pages] = mark
            epochs = pool.remember(pages)
            known = (known + [(page, epoch, mark) for page, epoch in zip(pages, epochs, strict=True)])[-40:]
            pool.release(pages)
        if known:
            page, epoch, mark = chance.choice(known)
            if pool.recall([page], [epoch], request):
                recalled += 1
                assert (words[page] == mark).all(), "a page was recalled that another process has written"
                pool.release([page])
    tell(recalled)


def seal(sender: int, number: int, payload: bytes) -> bytes:
    body = sender.to_bytes(4, "little") + number.to_bytes(4, "little") + payload
    return zlib.crc32(body).to_bytes(4, "little") + body


def unseal(message: bytes) -> tuple[int, int]:
    """(sender, number) of a message, after a check that it is whole."""
    assert zlib.crc32(message[4:]) == int.from_bytes(message[:4], "little"), "a torn message"
    return int.from_bytes(message[4:8], "little"), int.from_bytes(message[8:12], "little")


def send_messages(name: str, sender: int, count: int, largest: int) -> None:
    """Sends numbered messages of random lengths. 0 messages: until killed."""
    queue = MessageQueue.attach(name)
    chance = random.Random(sender)
    payload = chance.randbytes(largest)
    number = 0
    while not count or number < count:
        queue.send(seal(sender, number, payload[: chance.randint(0, largest)]))
        number += 1


def receive_messages(name: str, limit: int) -> None:
    """Prints sender:number of each message until an empty one comes."""
    queue = MessageQueue.attach(name)
    while True:
        for message in queue.receive_many(limit) if limit else [queue.receive()]:
            if not message:
                return
            tell("{}:{}".format(*unseal(message)))


def echo(requests: str, answers: str) -> None:
    """Sends back each message until an empty one comes."""
    source, target = MessageQueue.attach(requests), MessageQueue.attach(answers)
    while message := source.receive():
        target.send(message)


def wait_for_message(name: str) -> None:
    try:
        tell("waiting")
        MessageQueue.attach(name).receive()
    except KeyboardInterrupt:
        tell("interrupted")


def wait_for_room(name: str) -> None:
    try:
        tell("waiting")
        MessageQueue.attach(name).send(b"one too many")
    except KeyboardInterrupt:
        tell("interrupted")


def exit_with_waiting_thread(name: str) -> None:
    queue = MessageQueue.attach(name)
    threading.Thread(target=queue.receive, daemon=True).start()
    tell("exiting")


def reduce_often(name: str, rank: int, rounds: int) -> None:
    """Adds up vectors with other ranks; prints a digest of all sums and their total."""
    collective = Collective.join(name, rank)
    digest, totals = 0, [np.zeros(5000, np.float32) for _ in range(2)]
    for number in range(rounds):
        values = np.random.default_rng([number, rank]).standard_normal(5000, np.float32)
        collective.all_reduce(values, "float32")
        digest = zlib.crc32(values.tobytes(), digest)
        totals[number % 2] += values
    tell(digest)
    tell(float(sum(map(np.sum, totals))))


if __name__ == "__main__":
    globals()[sys.argv[1]](*json.loads(sys.argv[2]))
