"""How many nodes a pool gets by what its engines count."""

from unifiedserve.cluster.nodes.pool_scaler import PoolScaler
from unifiedserve.cluster.scaling import Limits
from unifiedserve.messages.load import EngineLoad, LoadReport


def told(work: float, first_tokens: int = 0, on_time: int = 0, backlog: float = 0.0, started: int = 1) -> LoadReport:
    load = EngineLoad(work=work, first_tokens=first_tokens, on_time=on_time, backlog=backlog)
    return LoadReport(model="m", version="v", started=started, healthy=True, max_model_len=9, load=load)


def last_of(scaler: PoolScaler, seconds: int, work: float, nodes: int = 1) -> tuple[int, int]:
    """Return what is wanted and needed after so many seconds with so much work a second on each of the nodes."""
    for second in range(seconds):
        wanted = scaler.after(second, {f"a-{n}": told(work * second) for n in range(nodes)}, nodes)
        assert wanted is not None
    return wanted


def test_more_work_than_a_node_does_brings_more_nodes() -> None:
    assert last_of(PoolScaler(Limits(1, 4)), 20, work=0.3) == (1, 1)
    assert last_of(PoolScaler(Limits(1, 4)), 20, work=0.9) == (2, 2)
    assert last_of(PoolScaler(Limits(1, 4)), 20, work=0.9, nodes=3) == (4, 4)


def test_what_is_needed_is_told_beyond_the_limit() -> None:
    assert last_of(PoolScaler(Limits(1, 4)), 20, work=1.5, nodes=3) == (4, 6)


def test_late_first_tokens_bring_one_more() -> None:
    scaler = PoolScaler(Limits(1, 4))
    assert scaler.after(0.0, {"a-0": told(0.0)}, 1) == (1, 0)
    assert scaler.after(1.0, {"a-0": told(0.1, first_tokens=50, on_time=50)}, 1) == (1, 1)
    assert scaler.after(2.0, {"a-0": told(0.2, first_tokens=100, on_time=90)}, 1) == (2, 2)


def test_a_backlog_brings_more() -> None:
    assert PoolScaler(Limits(1, 4)).after(0.0, {"a-0": told(0.0, backlog=20.0)}, 1) == (3, 3)


def test_a_restarted_engine_has_done_nothing_yet() -> None:
    scaler = PoolScaler(Limits(1, 4))
    scaler.after(0.0, {"a-0": told(1000.0)}, 1)
    assert scaler.after(1.0, {"a-0": told(0.0, started=2)}, 1) == (1, 0)
    assert scaler.after(2.0, {"a-0": told(0.5, started=2)}, 1) == (1, 1)


def test_it_looks_once_a_second() -> None:
    scaler = PoolScaler(Limits(1, 4))
    assert scaler.after(5.0, {}, 1) is not None
    assert scaler.after(5.9, {}, 1) is None
    assert scaler.after(6.1, {}, 1) is not None


def test_a_pool_sleeps_when_nothing_runs_and_wakes_when_something_waits() -> None:
    scaler = PoolScaler(Limits(0, 4))
    streaming = LoadReport(
        model="m", version="v", started=1, healthy=True, max_model_len=9, load=EngineLoad(in_flight=1, streams=1)
    )
    assert {scaler.after(float(second), {"a-0": streaming}, 1) for second in range(200)} == {(1, 1)}
    assert [scaler.after(float(second), {"a-0": told(0.0)}, 1) for second in range(200, 261)][-1] == (0, 0)
    assert scaler.after(300.0, {}, 0) == (0, 0)
    assert scaler.after(301.0, {}, 0, awaited=True) == (1, 1)
