"""In whatever order messages are seen and work ends, two requests that want the same few pages both finish."""

import pytest
from any_order import PlainCores, explore, in_any_order
from systems import LAYOUTS, PAGE

from unifiedserve.messages.ticket import Ticket
from unifiedserve.scheduling import Budget
from unifiedserve.scheduling.simulation import Arrival, FreePages, Simulator, StageCosts
from unifiedserve.scheduling.simulation.system import System

_BUDGET = Budget(prefill_tokens=4, encode_tokens=4, max_running=2, kv_page_tokens=PAGE)
_VIDEO = Arrival(Ticket(0, 0.0), [1, 1], [4], 2, gop=1)
_PAIRS = {
    "a video and a text": (_VIDEO, Arrival(Ticket(1, 1.0), [5], [], 2)),
    "two videos": (_VIDEO, Arrival(Ticket(1, 1.0), [1, 1], [4], 2, gop=1)),
    "two videos larger than the buffers": (
        Arrival(Ticket(0, 0.0), [0, 0, 1], [4, 4], 2, gop=1),
        Arrival(Ticket(1, 1.0), [0, 0, 1], [4, 4], 2, gop=1),
    ),
    "two texts that grow": (Arrival(Ticket(0, 0.0), [3], [], 4), Arrival(Ticket(1, 1.0), [4], [], 4)),
}
_POOLS = {
    "one at a time": FreePages(3, 1, 1, PAGE),
    "almost both": FreePages(4, 2, 2, PAGE),
}
_ALWAYS = {("monolithic", "a video and a text"), ("ep+d@mem1", "two texts that grow")}


def _system(placement: str, pair: str, pools: str) -> Simulator:
    return in_any_order(LAYOUTS[placement], _BUDGET, _POOLS[pools], _PAIRS[pair], StageCosts(), PlainCores(2))


@pytest.mark.parametrize(("placement", "pair"), sorted(_ALWAYS))
def test_nobody_waits_for_ever(placement: str, pair: str) -> None:
    explore(_system(placement, pair, "one at a time"), most=300)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("pools", _POOLS)
@pytest.mark.parametrize("pair", _PAIRS)
@pytest.mark.parametrize("placement", LAYOUTS)
def test_nobody_waits_for_ever_anywhere(placement: str, pair: str, pools: str) -> None:
    explored = explore(_system(placement, pair, pools), most=200_000)
    print(f"{placement}, {pair}, {pools}: {explored}")


@pytest.mark.parametrize("pair", ["two videos"])
def test_who_is_never_told_of_freed_pages_is_found(pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(System, "freed", lambda *_: None)
    with pytest.raises(AssertionError, match="nothing can happen"):
        explore(_system("shared", pair, "one at a time"), most=2000)
