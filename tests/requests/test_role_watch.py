"""What work the engine sees, and that it has a worker change because of it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from unifiedserve.engine.requests.record import ActiveRequest
from unifiedserve.engine.requests.table import RequestTable
from unifiedserve.engine.role_balance import RoleWatch, waiting_work
from unifiedserve.errors import RequestError
from unifiedserve.messages.costs import Costs
from unifiedserve.placement import Instance, Load, Placement, Route, Stage, read_placement
from unifiedserve.scheduling.roles import RoleBalance

COSTS = Costs(decode=0.5, prompt_token=0.125, visual_token=0.25)
ROUTE = Route("vision", ("encode-1",), "prefill-1", "decode-1")
LEFT = {Stage.ENCODE: 8, Stage.PREFILL: 16}


def request(table: RequestTable, uid: int, *lengths: int) -> None:
    """Begin a request whose answers have so many tokens."""
    answers = [
        SimpleNamespace(token_ids=[1] * length, finished=False, last_token=1.0 if length else None)
        for length in lengths
    ]
    active = ActiveRequest(cast(Any, None), 0.0, cast(Any, answers))
    table.add(active)
    table.begin(uid, active, range(len(lengths)), Load(ROUTE, LEFT))


def test_work_is_what_tokens_took_lately() -> None:
    table = RequestTable(4, lambda: None)
    assert waiting_work(table, COSTS) == {Stage.ENCODE: 0.0, Stage.PREFILL: 0.0, Stage.DECODE: 0.0}
    request(table, 1, 0)
    request(table, 2, 0)
    assert waiting_work(table, COSTS) == {Stage.ENCODE: 4.0, Stage.PREFILL: 4.0, Stage.DECODE: 0.0}
    request(table, 3, 10, 30)
    assert waiting_work(table, COSTS) == {Stage.ENCODE: 4.0, Stage.PREFILL: 4.0, Stage.DECODE: 15.0}


@pytest.mark.parametrize("refused", [False, True])
def test_it_asks_for_a_change_that_is_needed_for_long(refused: bool, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[Instance] = []
    placement: list[Placement | None] = [read_placement("2e+2p+2d", range(4))]

    def change(instance: Instance) -> None:
        asked.append(instance)
        if refused:
            raise RequestError("encode-1 cannot")

    async def watch() -> None:
        configured = read_placement("2e+2p+2d", range(4))
        watch = RoleWatch(RoleBalance(configured), lambda: placement[0], lambda: {Stage.PREFILL: 60.0}, change)
        for second in range(5):
            watch.look(float(second))
        assert not asked
        watch.look(5.0)
        placement[0] = None  # it is under way
        watch.look(100.0)
        watch.close()

    asyncio.run(watch())
    assert [(each.name, each.stages) for each in asked] == [("encode-1", (Stage.PREFILL,))]
    assert ("encode-1 cannot" in caplog.text) == refused
