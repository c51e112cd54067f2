"""Copy pages of memories that this process can map."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from ipc_buffers import ArenaError, Bell, PageCopier, PagePool, list_arenas
from unifiedserve.carriers.address import Address, AddressError, check_description, parse
from unifiedserve.carriers.base import Copy, Done
from unifiedserve.carriers.failures import Failures
from unifiedserve.carriers.setting import Setting, this_machine
from unifiedserve.errors import ConfigError

_MOST_SOURCES = 64  # that stay mapped
_DESCRIPTION = "description"


class MappedCarrier:
    """Read from pools of other processes of this machine. Their owners do nothing for it."""

    def __init__(self, kind: str, setting: Setting, bell: Bell, on_gpu: bool) -> None:
        self.address = ""
        self._kind = kind
        self._description = setting.description
        self._on_gpu = on_gpu
        self._own: dict[str, PagePool] = {}
        self._sources: OrderedDict[str, dict[str, PagePool]] = OrderedDict()
        try:
            self._copier = PageCopier(bell, setting.threads)
        except ValueError as error:
            raise ConfigError(f"the carrier {kind!r}: {error}") from None
        self._failures = Failures(bell)

    def register(self, pools: Mapping[str, PagePool]) -> None:
        """Let others map these pools, and read into them from now on."""
        for name, pool in pools.items():
            if (pool.memory.place != "host") != self._on_gpu:
                place = "GPUs" if self._on_gpu else "host memory"
                raise ConfigError(
                    f"the carrier {self._kind!r} is for {place}, and the pages of {name!r} are on {pool.memory.place!r}"
                )
        self._own = dict(pools)
        names = {name: f"{pool.inode}:{pool.name}" for name, pool in pools.items()}
        facts = {_DESCRIPTION: self._description, **names}
        self.address = Address(self._kind, this_machine(), facts).text()

    def read(self, address: str, copies: Sequence[Copy]) -> int:
        """Begin to copy, and return the transfer's number; see Carrier."""
        try:
            return self._copier.read(self._source(address), self._own, copies)
        except (AddressError, ArenaError) as error:
            return self._failures.add(str(error))

    def poll(self) -> list[Done]:
        """Return the transfers that have ended since the last call."""
        return self._failures.take() + [Done(*done) for done in self._copier.poll()]

    def close(self, transfer: int) -> None:
        """Drop a transfer; nothing is written to its pages after this."""
        if transfer < 0:
            self._failures.forget(transfer)
        else:
            self._copier.close(transfer)

    def shut(self) -> None:
        """Drop all transfers, and give up what was mapped."""
        self._copier.shut()
        for pools in self._sources.values():
            _close(pools)
        self._sources.clear()

    def _source(self, address: str) -> dict[str, PagePool]:
        """Return the pools of a source, mapped when it is first read from."""
        if address not in self._sources:
            self._give_up_ended()
            self._sources[address] = self._map(address)
            while len(self._sources) > _MOST_SOURCES:
                _close(self._sources.popitem(last=False)[1])
        self._sources.move_to_end(address)
        return self._sources[address]

    def _give_up_ended(self) -> None:
        """Give up sources whose names are gone: their memory goes back when nobody maps it any more."""
        names = {arena.name for arena in list_arenas()}
        ended = [
            address
            for address, pools in self._sources.items()
            if any(each.name not in names for each in pools.values())
        ]
        for address in ended:
            _close(self._sources.pop(address))

    def _map(self, text: str) -> dict[str, PagePool]:
        address = parse(text, self._kind)
        if address.where != this_machine():
            raise AddressError(
                f"the carrier {self._kind!r} reaches this machine only, and the source is on another one"
            )
        facts = dict(address.facts)
        check_description(facts.pop(_DESCRIPTION, ""), self._description)
        pools: dict[str, PagePool] = {}
        try:
            for name in facts.keys() & self._own.keys():
                inode, _, arena = facts[name].partition(":")
                pools[name] = PagePool.attach(arena)
                if str(pools[name].inode) != inode:
                    raise AddressError(f"the source's pool {name!r} is gone; what has its name now is another one")
        except BaseException:
            _close(pools)
            raise
        return pools


def _close(pools: Mapping[str, PagePool]) -> None:
    for pool in pools.values():
        pool.close()
