"""When workers change by themselves: for less waiting, never at a stage's cost, and not back and forth."""

from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from unifiedserve.placement import Placement, Stage, read_placement
from unifiedserve.scheduling.roles import RoleBalance, best_change, longest_work

SWITCHED = [Stage.ENCODE, Stage.PREFILL, Stage.DECODE]
IDLE = dict.fromkeys(SWITCHED, 0.0)
LOADS = st.fixed_dictionaries({stage: st.floats(0, 1000) for stage in SWITCHED})
PLACEMENTS = st.sampled_from(
    [
        read_placement(text, range(4))
        for text in ("2e+2p+2d", "3e+p+d", "e+2p+2d", "2ep+2d", "2epd", "ep+2pd+e", "2v+2e+p+d", "shared", "4p+e+d")
    ]
)


def run(
    balance: RoleBalance, placement: Placement, load: Mapping[Stage, float], start: float, seconds: int
) -> tuple[Placement, list[float]]:
    """Return what the workers host after so many seconds under a load, and when they changed; each does so at once."""
    times = []
    for second in range(seconds):
        if changed := balance.take(start + second, placement, load):
            others = placement.without([changed.name])
            assert all(others.hosts(stage) for stage in Stage), "a stage is left without a host meanwhile"
            placement = placement.changed(changed)
            times.append(start + second)
    return placement, times


@given(PLACEMENTS, LOADS)
def test_a_constant_load_ends_in_a_better_balance_and_stays_there(
    placement: Placement, load: dict[Stage, float]
) -> None:
    balance = RoleBalance(placement)
    seen = [placement]
    for turn in range(3):
        placement, times = run(balance, placement, load, 400.0 * turn, 400)
        assert all(later - earlier >= 30 for earlier, later in pairwise(times))
        seen.append(placement)
    assert placement == seen[1], "it still changes"
    assert longest_work(placement, load) <= longest_work(seen[0], load)
    assert best_change(placement, load) is None


@given(PLACEMENTS, LOADS)
def test_idle_workers_become_what_they_were_configured_to_be(configured: Placement, load: dict[Stage, float]) -> None:
    balance = RoleBalance(configured)
    changed, _ = run(balance, configured, load, 0.0, 200)
    assert run(balance, changed, IDLE, 200.0, 400)[0] == configured


@given(PLACEMENTS, LOADS, LOADS)
def test_loads_that_soon_pass_change_nothing(
    placement: Placement, some: dict[Stage, float], other: dict[Stage, float]
) -> None:
    """A load is there for four seconds, and gone for one."""
    balance = RoleBalance(placement)
    for second in range(100):
        load = IDLE if second % 5 == 4 else some if second // 5 % 2 else other
        assert balance.take(float(second), placement, load) is None


def test_an_encoder_takes_over_prefill() -> None:
    placement = read_placement("2e+2p+2d", range(4))
    changed = best_change(placement, {Stage.ENCODE: 2.0, Stage.PREFILL: 60.0, Stage.DECODE: 40.0})
    assert changed
    assert (changed.name, changed.stages, changed.cores) == ("encode-1", (Stage.PREFILL,), ())


def test_little_work_is_not_worth_a_change() -> None:
    placement = read_placement("2e+2p+2d", range(4))
    assert best_change(placement, {Stage.PREFILL: 1.9}) is None
    assert best_change(placement, {Stage.PREFILL: 2.1})


def test_nobody_changes_to_what_its_memory_has_nothing_for() -> None:
    work = {Stage.ENCODE: 0.1, Stage.PREFILL: 60.0, Stage.DECODE: 0.1}
    assert best_change(read_placement("2e@mem0+p@mem1+d@mem1", ()), work) is None
    placement = read_placement("3e@mem0+p@mem0+d@mem1+p@mem1", ())
    changed = best_change(placement, work)
    assert changed is not None
    assert (changed.name, changed.stages) == ("encode-1", (Stage.PREFILL,))
    moved = placement.changed(replace(placement.instances[4], stages=(Stage.ENCODE,)))  # mem0 is left without prefill
    assert best_change(moved, work) is None
    assert best_change(moved, work, placement) is not None
