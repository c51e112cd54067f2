"""Thousands of operations in any order, against a model of what every page must hold."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sides import SETTING, Side

from unifiedserve.carriers.base import Copy

SIZES = {"kv": (12, 4096), "visual": (6, 9000)}
NAMES = st.sampled_from(sorted(SIZES))
SOURCES = st.integers(0, 1)


class Transfers(RuleBasedStateMachine):
    """Two sources that take, fill and free pages, and a target that reads from both."""

    kind = "shared"

    @initialize()
    def open(self) -> None:
        self.sources = [Side(self.kind, SETTING, SIZES) for _ in range(2)]
        self.target = Side(self.kind, SETTING, SIZES)
        self.offers: list[tuple[int, str, int, int, int]] = []  # source, pool, page, epoch, value
        self.held: list[tuple[int, str, int]] = []
        self.under_way: dict[int, tuple[str, list[int], list[tuple[int, str, int, int, int]]]] = {}
        self.kept: dict[tuple[str, int], int] = {}  # pages of the target that were read, and with what they are filled
        self.last = 0

    @rule(source=SOURCES, name=NAMES, count=st.integers(1, 4))
    def fill(self, source: int, name: str, count: int) -> None:
        side = self.sources[source]
        pages = side.pools[name].allocate(count, 1)
        for page in [] if pages is None else pages.tolist():
            self.last = self.last % 254 + 1
            side.bytes[name][page] = self.last
            self.offers.append((source, name, page, int(side.pools[name].epochs([page])[0]), self.last))
            self.held.append((source, name, page))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        source, name, page = data.draw(st.sampled_from(self.held))
        self.held.remove((source, name, page))
        self.sources[source].pools[name].release([page])

    @precondition(lambda self: self.offers)
    @rule(data=st.data(), source=SOURCES, name=NAMES)
    def read(self, data: st.DataObject, source: int, name: str) -> None:
        there = [offer for offer in self.offers if offer[:2] == (source, name)]
        wanted = data.draw(st.lists(st.sampled_from(there), max_size=5)) if there else []
        into = self.target.pools[name].allocate(len(wanted), 1)
        if into is None:
            return
        copy = Copy(name, [offer[2] for offer in wanted], [offer[3] for offer in wanted], into.tolist())
        transfer = self.target.carrier.read(self.sources[source].address, [copy])
        self.under_way[transfer] = (name, into.tolist(), wanted)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        transfer = data.draw(st.sampled_from(sorted(self.under_way)))
        name, into, wanted = self.under_way.pop(transfer)
        (done,) = self.target.wait(transfer)
        if done.error:
            assert done.error.endswith("has been taken anew")
            assert any(not self.is_there(offer) for offer in wanted)
            self.keep(name, into)
            return
        for page, offer in zip(into, wanted, strict=True):
            assert (self.target.bytes[name][page] == offer[4]).all()
            self.kept[name, page] = offer[4]

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        transfer = data.draw(st.sampled_from(sorted(self.under_way)))
        name, into, _ = self.under_way.pop(transfer)
        self.target.close(transfer)
        self.keep(name, into)

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        name, page = data.draw(st.sampled_from(sorted(self.kept)))
        del self.kept[name, page]
        self.target.pools[name].release([page])

    def keep(self, name: str, pages: list[int]) -> None:
        """Fill pages that were not read, and keep them: which they are is a matter of time, how many pages are not."""
        self.target.bytes[name][pages] = 255
        for page in pages:
            self.kept[name, page] = 255

    def is_there(self, offer: tuple[int, str, int, int, int]) -> bool:
        source, name, page, epoch, _ = offer
        return int(self.sources[source].pools[name].epochs([page])[0]) == epoch

    @invariant()
    def what_was_read_stays(self) -> None:
        for (name, page), value in getattr(self, "kept", {}).items():
            assert np.all(self.target.bytes[name][page] == value)

    def teardown(self) -> None:
        for side in (*getattr(self, "sources", []), *filter(None, [getattr(self, "target", None)])):
            side.end()


def test_any_order_of_operations(kind: str) -> None:
    examples = 4 if kind == "nixl" else 40  # to open an agent of NIXL takes half a second
    machine = type("Machine", (Transfers,), {"kind": kind})
    profile = settings(
        max_examples=examples, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=profile)  # type: ignore[no-untyped-call]
