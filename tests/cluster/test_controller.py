"""The controller over nodes of a table: what it starts, drains and tells, and what it knows after its own end."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from unifiedserve.cluster import scaling as scaling_module
from unifiedserve.cluster.cluster_file import Cluster, Pool, Resources, RouterOptions
from unifiedserve.cluster.members import Member, Membership, read_membership
from unifiedserve.cluster.nodes import controller as controller_module
from unifiedserve.cluster.nodes import load_watch as load_watch_module
from unifiedserve.cluster.nodes import pool_scaler as pool_scaler_module
from unifiedserve.cluster.nodes import watch as watch_module
from unifiedserve.cluster.nodes.actors import NodeError
from unifiedserve.cluster.nodes.controller import Controller
from unifiedserve.cluster.nodes.load_watch import LoadWatch
from unifiedserve.cluster.nodes.reports import NodeReport, NodeSpec, Phase
from unifiedserve.cluster.nodes.watch import Watch
from unifiedserve.messages.load import EngineLoad, LoadReport


class Table:
    """A table of nodes, which serve at once, and stop when they drain."""

    def __init__(self) -> None:
        self.specs: dict[str, NodeSpec] = {}
        self.reports: dict[str, NodeReport] = {}
        self.silent: set[str] = set()
        self.told: dict[str, bytes] = {}
        self.fewest: dict[str, int] = {}  # by pool, nodes that went on serving when one drained

    def names(self) -> list[str]:
        return sorted(self.reports)

    def start(self, spec: NodeSpec, resources: Resources) -> None:
        actor = f"{spec.name}@{spec.revision}"
        assert actor not in self.reports
        self.specs[actor] = spec
        phase = Phase.FAILED if "--placement=bad" in spec.command else Phase.SERVING
        self.reports[actor] = NodeReport(
            name=spec.name,
            pool=spec.pool,
            revision=spec.revision,
            phase=phase,
            url=f"http://127.0.0.1:9/{spec.name}",
            reason="bad",
        )

    async def report(self, actor: str) -> NodeReport:
        await asyncio.sleep(0)
        if actor in self.silent or actor not in self.reports:
            raise NodeError(actor)
        return self.reports[actor]

    async def tell(self, actor: str, line: bytes) -> None:
        self.told[actor] = line

    async def drain(self, actor: str) -> None:
        self.reports[actor] = msgspec.structs.replace(self.reports[actor], phase=Phase.STOPPED, url="")
        pool = self.reports[actor].pool
        serving = sum(each.phase is Phase.SERVING for each in self.of(pool))
        self.fewest[pool] = min(self.fewest.get(pool, serving), serving)

    def remove(self, actor: str) -> None:
        del self.reports[actor]

    def of(self, pool: str) -> list[NodeReport]:
        return [report for report in self.reports.values() if report.pool == pool]

    def members(self, router: str) -> list[Member]:
        return self.membership(router).members

    def membership(self, router: str) -> Membership:
        return next(
            (read_membership(line) for actor, line in self.told.items() if actor.startswith(router)), Membership([])
        )


class Unasked:
    """An engine that is not looked at, and takes requests."""

    load = None
    is_cut_off = False

    def __init__(self, url: str) -> None:
        self.url = url

    def end(self) -> None:
        pass


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "_TURN", 0.001)
    monkeypatch.setattr(watch_module, "_PAUSE", 0.001)
    monkeypatch.setattr(watch_module, "LoadWatch", Unasked)


@pytest.fixture
def table() -> Table:
    return Table()


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


def told_with(**load: float) -> LoadReport:
    return LoadReport(
        model="m", version="v", started=1, healthy=True, max_model_len=9, load=msgspec.convert(load, EngineLoad)
    )


def cluster_of(*pools: Pool, ports: tuple[int, ...] = (8000,)) -> Cluster:
    return Cluster(pool=pools, router=RouterOptions(ports=ports))


def control(table: Table, cluster: Cluster, *, restarted: bool = False) -> Controller:
    return Controller(table, cluster, None, restarted=restarted)


def end_all() -> None:
    """End all controllers as their process's end would."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def ready(controller: Controller) -> None:
    while not (await controller.status()).is_ready:
        await asyncio.sleep(0.001)


async def test_pools_and_routers_come_up_and_routers_know_the_nodes(table: Table) -> None:
    controller = control(table, cluster_of(Pool(name="a", count=2), Pool(name="b"), ports=(8000, 8001)))
    await ready(controller)
    assert [each.name for each in table.of("a")] == ["a-0", "a-1"]
    for router in ("router-0", "router-1"):
        await until(lambda router=router: len(table.members(router)) == 3)
    assert Member(name="a-0", pool="a", url="http://127.0.0.1:9/a-0") in table.members("router-0")
    commands = {spec.name: spec.command for spec in table.specs.values()}
    assert commands["a-0"] == ("serve", "--placement=shared", "--port=0")
    assert "--port=8001" in commands["router-1"]


async def test_routers_know_their_names_and_pages(table: Table) -> None:
    options = RouterOptions(allowed_hosts=("api.example",), cors_origins=("https://a.example", "https://b.example"))
    await ready(control(table, Cluster(pool=(Pool(name="a"),), router=options)))
    commands = {spec.name: spec.command for spec in table.specs.values()}
    assert commands["router-0"][-3:] == (
        "--allowed-hosts=api.example",
        "--cors-origins=https://a.example",
        "--cors-origins=https://b.example",
    )
    assert options.revision(1) != RouterOptions(allowed_hosts=("api.example",)).revision(1), "it is replaced for it"


async def test_it_scales(table: Table) -> None:
    controller = control(table, cluster_of(Pool(name="a", count=2), Pool(name="b", min=1, max=2)))
    assert await controller.scale("a", 3) == ""
    await ready(controller)
    assert len(table.of("a")) == 3
    assert await controller.scale("a", 0) == ""
    await until(lambda: not table.of("a"))
    assert "between 1 and 2" in await controller.scale("b", 3)
    assert "there are a, b" in await controller.scale("c", 1)


async def test_a_pool_that_sleeps_wakes_when_requests_wait(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_scaler_module, "_PERIOD", 0.0)
    monkeypatch.setattr(scaling_module, "_PATIENCE", 0.0)
    controller = control(table, cluster_of(Pool(name="a", min=0, max=2), Pool(name="b", min=0, max=2)))
    await until(lambda: table.membership("router-0").asleep == ["a", "b"])
    assert not table.of("a")
    router = next(name for name in table.reports if name.startswith("router-0"))
    table.reports[router] = msgspec.structs.replace(table.reports[router], awaited=frozenset({"a"}))
    await until(lambda: len(table.members("router-0")) == 1)
    assert table.membership("router-0").asleep == ["b"]
    assert [pool.target for pool in (await controller.status()).pools] == [1, 0]


async def test_a_drained_node_has_a_successor(table: Table) -> None:
    controller = control(table, cluster_of(Pool(name="a", count=2)))
    await ready(controller)
    assert await controller.drain("a-0") == ""
    await until(lambda: [each.name for each in table.of("a")] == ["a-1", "a-2"])
    assert "there are a-1, a-2, router-0" in await controller.drain("z")


async def test_another_file_replaces_nodes_and_one_goes_on_serving(table: Table) -> None:
    await ready(control(table, cluster_of(Pool(name="a", count=3))))
    old = set(table.reports)
    end_all()
    after = control(table, cluster_of(Pool(name="a", count=3, serve={"max-running": 4})))
    assert not (await after.status()).is_ready
    await ready(after)
    assert not old & {actor for actor in table.reports if actor.startswith("a-")}
    assert (len(table.of("a")), table.fewest["a"]) == (3, 2)


async def test_routers_are_replaced_one_after_the_other(table: Table) -> None:
    await ready(control(table, cluster_of(Pool(name="a"), ports=(8000, 8001))))
    end_all()
    after = control(table, cluster_of(Pool(name="a"), ports=(8002, 8003)))
    await ready(after)
    assert table.fewest["router"] == 1
    assert {spec.command[-1] for spec in table.specs.values() if spec.pool == "router"} == {
        "--port=8000",
        "--port=8001",
        "--port=8002",
        "--port=8003",
    }


async def test_a_pool_that_is_gone_from_the_file_drains(table: Table) -> None:
    await ready(control(table, cluster_of(Pool(name="a"), Pool(name="b"))))
    end_all()
    after = control(table, cluster_of(Pool(name="b")))
    await until(lambda: not table.of("a"))
    await ready(after)


async def test_a_restarted_controller_keeps_the_scale_and_starts_nothing(table: Table) -> None:
    cluster = cluster_of(Pool(name="a", count=1))
    first = control(table, cluster)
    await first.scale("a", 3)
    await ready(first)
    started = len(table.specs)
    end_all()
    second = control(table, cluster, restarted=True)
    await ready(second)
    assert (await second.status()).pools[0].target == 3
    assert len(table.specs) == started


async def test_a_restarted_controller_starts_nothing_for_a_node_that_was_about_to_leave(table: Table) -> None:
    cluster = cluster_of(Pool(name="a", count=2))
    await ready(control(table, cluster))
    (leaving, *_) = (actor for actor in table.names() if actor.startswith("a-"))
    table.reports[leaving] = msgspec.structs.replace(table.reports[leaving], phase=Phase.DRAINING)
    await until(lambda: len(table.of("a")) == 3)  # with the one in its place
    end_all()
    table.told.clear()
    second = control(table, cluster, restarted=True)
    await until(lambda: bool(table.told))
    table.reports[leaving] = msgspec.structs.replace(table.reports[leaving], phase=Phase.STOPPED, url="")
    await until(lambda: leaving not in table.reports)
    await ready(second)
    assert (await second.status()).pools[0].target == len(table.of("a")) == 2


async def test_routers_are_not_told_that_there_is_none_before_nodes_are_heard(table: Table) -> None:
    cluster = cluster_of(Pool(name="a", count=2))
    await ready(control(table, cluster))
    end_all()
    table.told.clear()
    table.silent = {actor for actor in table.names() if actor.startswith("a-")}
    second = control(table, cluster, restarted=True)
    while "serving" not in [router.phase for router in (await second.status()).routers]:
        await asyncio.sleep(0.001)
    assert not table.told
    table.silent.clear()
    await until(lambda: bool(table.told))
    assert len(table.members("router-0")) == 2


async def test_a_lost_node_is_told_of_with_its_last_url(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_SILENCE", 0.02)
    controller = control(table, cluster_of(Pool(name="a")))
    await ready(controller)
    table.silent = {actor for actor in table.names() if actor.startswith("a-")}
    while (await controller.status()).pools[0].nodes[0].phase is not Phase.LOST:
        await asyncio.sleep(0.001)
    table.told.clear()
    await until(lambda: bool(table.told))
    assert [each.url for each in table.members("router-0")] == ["http://127.0.0.1:9/a-0"]
    table.silent.clear()
    await ready(controller)


async def test_a_lost_node_that_a_user_drains_while_routers_are_told_holds_nothing_up(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch_module, "_SILENCE", 0.02)
    controller = control(table, cluster_of(Pool(name="a"), ports=(8000, 8001)))
    await ready(controller)
    table.silent = {actor for actor in table.names() if actor.startswith("a-")}
    while (await controller.status()).pools[0].nodes[0].phase is not Phase.LOST:
        await asyncio.sleep(0.001)
    told, tell = asyncio.Event(), table.tell

    async def drain_meanwhile(actor: str, line: bytes) -> None:
        if not told.is_set():
            told.set()
            await controller.drain("a-0")
        await tell(actor, line)

    table.tell = drain_meanwhile  # type: ignore[method-assign]
    await told.wait()
    table.silent.clear()
    await ready(controller)
    assert caplog.records == []


async def test_a_node_that_cannot_be_reached_is_told_of_with_its_address(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "LoadWatch", LoadWatch)
    monkeypatch.setattr(load_watch_module, "_PATIENCE", 0.05)
    monkeypatch.setattr(load_watch_module, "_PERIOD", 0.01)
    controller = control(table, cluster_of(Pool(name="a")))  # nobody listens on port 9
    while not (failures := (await controller.status()).failures):
        await asyncio.sleep(0.001)
    assert failures[0].startswith("a-0: http://127.0.0.1:9/a-0 does not answer")
    await until(lambda: [each.url for each in table.members("router-0")] == ["http://127.0.0.1:9/a-0"])


async def test_a_node_that_babbles_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_watch_module, "_PERIOD", 0.01)
    told = LoadReport(model="m", version="v", started=0, healthy=True, max_model_len=1, load=EngineLoad())
    answers = [b"no JSON", b'{"unknown": ' + b"[" * 100_000, msgspec.json.encode(told)]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for body in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    watch = LoadWatch(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await until(lambda: watch.load is not None)
    watch.end()
    server.close()


async def test_a_pool_grows_by_its_load_and_scales_to_no_fewer(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_scaler_module, "_PERIOD", 0.01)
    monkeypatch.setattr(Watch, "load", told_with(backlog=20.0))
    controller = control(table, cluster_of(Pool(name="a", min=1, max=4)))
    while (pool := (await controller.status()).pools[0]).target < 2:
        await asyncio.sleep(0.001)
    assert pool.target == min(4, pool.needed or 0)
    monkeypatch.setattr(pool_scaler_module, "_PERIOD", 60.0)
    assert f"needs {pool.needed} nodes" in await controller.scale("a", 1)


async def test_a_failure_is_told(table: Table) -> None:
    controller = control(table, cluster_of(Pool(name="a", placement="bad")))
    while not (failures := (await controller.status()).failures):
        await asyncio.sleep(0.001)
    assert failures == ["a-0: bad"]


async def test_routers_go_last(table: Table) -> None:
    controller = control(table, cluster_of(Pool(name="a", count=2)))
    await ready(controller)
    gone: list[str] = []
    remove = table.remove

    def noting(actor: str) -> None:
        gone.append(table.reports[actor].pool)
        remove(actor)

    table.remove = noting  # type: ignore[method-assign]
    await controller.close()
    await until(lambda: not table.reports)
    assert gone == ["a", "a", "router"]
    assert (await controller.status()).is_empty
