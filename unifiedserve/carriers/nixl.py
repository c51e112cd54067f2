"""Carry pages by NIXL: one-sided reads of registered pools. Its backend finds the way (RDMA, shared memory, TCP)."""

import threading
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ipc_buffers import ArenaError, Bell, PageError, PagePool
from unifiedserve.carriers.address import Address, AddressError, check_description, parse
from unifiedserve.carriers.base import Copy, Done
from unifiedserve.carriers.failures import Failures
from unifiedserve.carriers.nixl_agent import (
    Area,
    Areas,
    NixlAgent,
    NixlError,
    NixlRead,
    Pieces,
    Places,
    unique_agent_name,
)
from unifiedserve.carriers.setting import Setting, this_machine
from unifiedserve.errors import ConfigError

_KIND = "nixl"
_DESCRIPTION, _METADATA = "description", "metadata"
_EPOCH_BYTES = 8
_SHORTEST_REST, _LONGEST_REST = 0.00002, 0.001  # seconds between looks at what is under way
_QUICK_LOOKS = 50


class _Region(NamedTuple):
    """Locate a pool in its process: pages, and the words of their epochs."""

    pages: int
    epochs: int
    num_pages: int
    page_bytes: int

    def text(self) -> str:
        return ":".join(map(str, self))

    def page_areas(self) -> Areas:
        return _areas(self.pages, self.num_pages, self.page_bytes)

    def epoch_areas(self) -> Areas:
        return _areas(self.epochs, self.num_pages, _EPOCH_BYTES)


class _Own(NamedTuple):
    """Hold a pool of this process. It has room for the epochs of the pages read into it."""

    pool: PagePool
    data: NDArray[np.uint8]
    words: NDArray[np.uint64]
    read_epochs: NDArray[np.uint64]

    @property
    def region(self) -> _Region:
        return _Region(self.data.ctypes.data, self.words.ctypes.data, self.pool.num_pages, self.pool.page_bytes)

    @property
    def into(self) -> _Region:
        """Return the same, with where epochs of other pages are read to."""
        return self.region._replace(epochs=self.read_epochs.ctypes.data)


class _Prepared(NamedTuple):
    """Hold pages of all pools of a side, and their epochs.

    They are in the pools' order; each pool begins at its place.
    """

    pages: Pieces
    epochs: Pieces
    places: Mapping[str, int]


class _Source(NamedTuple):
    regions: Mapping[str, _Region]
    prepared: _Prepared


@dataclass
class _Transfer:
    copies: Sequence[Copy]
    source: _Source
    there: Places
    here: Places
    reading: NixlRead
    reads_epochs: bool = False
    begun: float = field(default_factory=time.monotonic)


class NixlCarrier:
    """Read without the source's help: its pages first, then the epochs of these pages, which are compared."""

    def __init__(self, setting: Setting, bell: Bell) -> None:
        self._agent = NixlAgent(unique_agent_name())
        self.address = ""
        self._description = setting.description
        self._patience = setting.patience
        self._bell = bell
        self._failures = Failures(bell)
        self._own: dict[str, _Own] = {}
        self._prepared: _Prepared
        self._sources: dict[str, _Source] = {}
        self._under_way: dict[int, _Transfer] = {}
        self._done: list[Done] = []
        self._last = 0
        self._stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="carrier", daemon=True)
        self._thread.start()

    def register(self, pools: Mapping[str, PagePool]) -> None:
        """Let others read these pools, and read into them from now on."""
        try:
            self._own = {name: _own_pool(pool) for name, pool in pools.items()}
            for own in self._own.values():
                for array in (own.data, own.words, own.read_epochs):
                    self._agent.register(Area(array.ctypes.data, array.nbytes))
            metadata = self._agent.metadata()
            self._prepared = self._prepare("", {name: own.into for name, own in self._own.items()})
        except (ArenaError, NixlError) as error:
            raise ConfigError(f"the carrier {_KIND!r}: {error}") from None
        facts = {_DESCRIPTION: self._description, **{name: own.region.text() for name, own in self._own.items()}}
        facts[_METADATA] = urlsafe_b64encode(metadata).decode()
        self.address = Address(_KIND, this_machine(), facts).text()

    def read(self, address: str, copies: Sequence[Copy]) -> int:
        """Begin to read, and return the transfer's number; see Carrier."""
        if self._stopping:
            raise RuntimeError("this carrier is shut")
        for copy in copies:
            _check_own(copy, self._own)
        copies = [copy for copy in copies if len(copy.source)]
        try:
            source = self._source(address)
            for copy in copies:
                _check_source(copy, source.regions, self._own)
            return self._begin(copies, source)
        except (AddressError, NixlError) as error:
            return self._failures.add(str(error))

    def poll(self) -> list[Done]:
        """Return the transfers that have ended since the last call."""
        with self._changed:
            done, self._done = self._done, []
        return self._failures.take() + done

    def close(self, transfer: int) -> None:
        """Drop a transfer; nothing is written to its pages after this."""
        self._failures.forget(transfer)
        with self._changed:
            dropped = self._under_way.pop(transfer, None)
            self._done = [done for done in self._done if done.transfer != transfer]
            if dropped:
                _give_up(dropped.reading)

    def shut(self) -> None:
        """Drop all transfers, and take back what was registered."""
        with self._changed:
            if self._stopping:
                return
            self._stopping = True
            for transfer in self._under_way.values():
                _give_up(transfer.reading)
            self._under_way.clear()
            self._changed.notify_all()
        self._thread.join()
        self._agent.end()
        self._own.clear()

    def _begin(self, copies: Sequence[Copy], source: _Source) -> int:
        there = _places(source.prepared, [(copy.pool, copy.source) for copy in copies])
        here = _places(self._prepared, [(copy.pool, copy.into) for copy in copies])
        reading = self._agent.read(source.prepared.pages, there, self._prepared.pages, here) if copies else None
        with self._changed:
            self._last += 1
            if reading:
                self._under_way[self._last] = _Transfer(copies, source, there, here, reading)
            else:
                self._done.append(Done(self._last, "", 0, 0.0))
                self._bell.ring()
            self._changed.notify_all()
            return self._last

    def _run(self) -> None:
        looked = 0  # in vain
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._under_way)
                if self._stopping:
                    return
                ended = [number for number, transfer in self._under_way.items() if self._go_on(number, transfer)]
                for number in ended:
                    del self._under_way[number]
            if ended:
                self._bell.ring()
                looked = 0
            else:
                looked += 1
                time.sleep(_rest(looked))  # NIXL tells nobody when something is done

    def _go_on(self, number: int, transfer: _Transfer) -> bool:
        """Look how far a transfer has come; return whether it has ended, after telling of it."""
        try:
            if not transfer.reading.done():
                if time.monotonic() < transfer.begun + self._patience:
                    return False
                error = f"NIXL: nothing came in {self._patience} seconds"
            elif transfer.reads_epochs:
                error = self._stale(transfer)
            else:
                transfer.reading.release()
                epochs, into = transfer.source.prepared.epochs, self._prepared.epochs
                transfer.reading = self._agent.read(epochs, transfer.there, into, transfer.here)
                transfer.reads_epochs = True
                return False
        except NixlError as failure:
            error = str(failure)
        _give_up(transfer.reading)
        seconds = time.monotonic() - transfer.begun
        size = sum(len(copy.into) * self._own[copy.pool].pool.page_bytes for copy in transfer.copies)
        self._done.append(Done(number, error, 0 if error else size, seconds))
        return True

    def _stale(self, transfer: _Transfer) -> str:
        """Say which page is not in its epoch any more; empty if all are."""
        for copy in transfer.copies:
            read = self._own[copy.pool].read_epochs[np.asarray(copy.into, np.int64)]
            changed = np.flatnonzero(read != np.asarray(copy.epochs, np.uint64))
            if len(changed):
                return f"page {copy.source[int(changed[0])]} of {copy.pool!r} has been taken anew"
        return ""

    def _source(self, text: str) -> _Source:
        """Return a source that an address tells of; NIXL hears of it when it is first read from."""
        if text not in self._sources:
            facts = dict(parse(text, _KIND).facts)
            check_description(facts.pop(_DESCRIPTION, ""), self._description)
            try:
                metadata = urlsafe_b64decode(facts.pop(_METADATA))
                regions = {name: _Region(*map(int, told.split(":"))) for name, told in facts.items()}
            except (KeyError, TypeError, ValueError):
                raise AddressError(f"{text[:80]!r} is no address of a carrier {_KIND!r}") from None
            agent = self._agent.name if text == self.address else self._agent.meet(metadata)
            self._sources[text] = _Source(regions, self._prepare(agent, regions))
        return self._sources[text]

    def _prepare(self, agent: str, regions: Mapping[str, _Region]) -> _Prepared:
        """Have NIXL look once at all pages and words of epochs of an agent. "" is this one."""
        pages, epochs = (
            self._agent.prepare(agent, np.concatenate([areas(region) for region in regions.values()]))
            for areas in (_Region.page_areas, _Region.epoch_areas)
        )
        ends = np.cumsum([region.num_pages for region in regions.values()]).tolist()
        return _Prepared(pages, epochs, dict(zip(regions, [0, *ends], strict=False)))


def _own_pool(pool: PagePool) -> _Own:
    words = np.frombuffer(pool.epoch_words(), np.uint64)
    return _Own(pool, np.frombuffer(pool.data(), np.uint8), words, np.zeros(pool.num_pages, np.uint64))


def _give_up(reading: NixlRead) -> None:
    """Return when nothing is written by a read any more."""
    while not reading.release():
        try:
            if reading.done():
                return
        except NixlError:  # it has failed, and writes nothing
            return
        time.sleep(_SHORTEST_REST)


def _rest(looked: int) -> float:
    """Return how long to sleep after so many looks in vain, in seconds: at first, others only have their turn."""
    return min(_SHORTEST_REST * (looked - _QUICK_LOOKS), _LONGEST_REST) if looked > _QUICK_LOOKS else 0.0


def _areas(first: int, count: int, size: int) -> Areas:
    """Return so many neighbours from an address on, as NIXL has them."""
    areas = np.zeros((count, 3), np.int64)
    areas[:, 0] = first + size * np.arange(count)
    areas[:, 1] = size
    return areas


def _places(prepared: _Prepared, pages: Sequence[tuple[str, Sequence[int]]]) -> Places:
    """Return where pages of pools are among what was prepared."""
    places = [np.asarray(numbers, np.int32) + prepared.places[pool] for pool, numbers in pages]
    return np.concatenate([np.empty(0, np.int32), *places], dtype=np.int32)


def _check_own(copy: Copy, own: Mapping[str, _Own]) -> None:
    """Raise as Carrier.read for what is wrong on this side."""
    if copy.pool not in own:
        raise ValueError(f"no pool {copy.pool!r} has been registered")
    if not len(copy.source) == len(copy.epochs) == len(copy.into):
        counts = f"{len(copy.source)} pages of {copy.pool!r} with {len(copy.epochs)} epochs, into {len(copy.into)}"
        raise ValueError(counts)
    pool = own[copy.pool].pool
    free = [page for page in copy.into if pool.references(page) == 0]
    if free:
        raise PageError(f"page {free[0]} of {copy.pool!r} is free")
    if min(copy.source, default=0) < 0:
        raise PageError(f"page {min(copy.source)} is in no pool")


def _check_source(copy: Copy, regions: Mapping[str, _Region], own: Mapping[str, _Own]) -> None:
    """Raise AddressError for what a source does not have."""
    if copy.pool not in regions:
        raise AddressError(f"the source has no pool {copy.pool!r}")
    there, here = regions[copy.pool], own[copy.pool].region
    if there.page_bytes != here.page_bytes:
        sizes = f"{there.page_bytes} bytes, and this side of {here.page_bytes}"
        raise AddressError(f"the source has pages of {copy.pool!r} of {sizes}")
    if max(copy.source) >= there.num_pages:
        where = f"the source's pool {copy.pool!r} of {there.num_pages} pages"
        raise AddressError(f"page {max(copy.source)} is not in {where}")
