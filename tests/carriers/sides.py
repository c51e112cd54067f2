"""One side of a transfer: pools with known contents, and a carrier over them."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ipc_buffers import Bell, MessageQueue, PagePool
from unifiedserve.carriers.base import Carrier, Copy, Done
from unifiedserve.carriers.choose import open_carrier
from unifiedserve.carriers.setting import Setting

TOKEN = secrets.token_hex(32)
SETTING = Setting("tiny, float32, 16 tokens a page", TOKEN, patience=300.0)  # for busy machines
SIZES = {"kv": (64, 4096), "visual": (32, 1536)}  # pages, and bytes of one
_numbers = itertools.count()


def unique_name() -> str:
    return f"test-{os.getpid()}-{next(_numbers)}"


class Offer:
    """Pages of one pool that a source has filled, and in which epochs."""

    def __init__(self, name: str, pages: Sequence[int], epochs: Sequence[int], contents: NDArray[np.uint8]) -> None:
        self.name, self.pages, self.epochs, self.contents = name, pages, epochs, contents

    def into(self, pages: Sequence[int]) -> Copy:
        return Copy(self.name, self.pages, self.epochs, pages)


class Side:
    """Pools and a carrier over them; `wait` returns what has ended."""

    def __init__(
        self, kind: str, setting: Setting = SETTING, sizes: Mapping[str, tuple[int, int]] = SIZES, token: str = ""
    ) -> None:
        self.pools = {name: PagePool.create(unique_name(), *size) for name, size in sizes.items()}
        self.bytes = {
            name: np.frombuffer(pool.data(), np.uint8).reshape(pool.num_pages, pool.page_bytes)
            for name, pool in self.pools.items()
        }
        self._news = MessageQueue.create(unique_name(), 256)
        setting = replace(setting, token=token) if token else setting
        try:
            self.carrier: Carrier = open_carrier(kind, setting, Bell(self._news, b""))
            self.carrier.register(self.pools)
        except BaseException:
            self.remove_memory()
            raise
        self._random = np.random.default_rng(next(_numbers))
        self._ended: dict[int, Done] = {}

    @property
    def address(self) -> str:
        return self.carrier.address

    def take(self, name: str, count: int) -> list[int]:
        pages = self.pools[name].allocate(count, 1)
        assert pages is not None
        return [int(page) for page in self._random.permutation(pages)]

    def fill(self, name: str, count: int) -> Offer:
        """Take pages, in no order, and write something to them."""
        pages = self.take(name, count)
        contents = self._random.integers(0, 256, (count, self.pools[name].page_bytes), np.uint8)
        self.bytes[name][pages] = contents
        return Offer(name, pages, self.pools[name].epochs(pages).tolist(), contents)

    def wait(self, *transfers: int) -> list[Done]:
        """Return how these have ended, when all have."""
        while not self._ended.keys() >= set(transfers):
            self._news.receive()
            self.poll()
        return [self._ended.pop(transfer) for transfer in transfers]

    def poll(self) -> dict[int, Done]:
        """Return all that have ended and were not waited for."""
        self._ended |= {done.transfer: done for done in self.carrier.poll()}
        return self._ended

    def close(self, transfer: int) -> None:
        """Close a transfer, and forget what was told of it before."""
        self.carrier.close(transfer)
        self._ended.pop(transfer, None)

    def fetch(self, address: str, *copies: Copy) -> Done:
        return self.wait(self.carrier.read(address, copies))[0]

    def remove_memory(self) -> None:
        self._news.unlink()
        self.bytes = {}
        for pool in self.pools.values():
            pool.close()
            pool.unlink()

    def end(self) -> None:
        self.carrier.shut()
        self.remove_memory()


MakeSide = Callable[..., Side]
