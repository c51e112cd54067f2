"""Keep as many nodes as there should be, and tell routers of them.

It holds nothing that is lost with it: which nodes there are is known to Ray, how they are to themselves.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Iterable, Sequence

from unifiedserve import __version__
from unifiedserve.cluster.cluster_file import ROUTER, Cluster, Pool, Resources
from unifiedserve.cluster.members import Member, write_membership
from unifiedserve.cluster.nodes.actors import Actors, NodeError
from unifiedserve.cluster.nodes.head import RayProcess
from unifiedserve.cluster.nodes.pool_scaler import PoolScaler
from unifiedserve.cluster.nodes.reconcile import next_steps
from unifiedserve.cluster.nodes.reports import ClusterStatus, NodeReport, NodeSpec, Phase, PoolStatus
from unifiedserve.cluster.nodes.watch import Watch
from unifiedserve.cluster.scaling import Limits

_log = logging.getLogger(__name__)

_TURN = 0.25  # seconds
_ANSWER = 1.0  # seconds that a node has to answer
_SETTLING = 5.0  # seconds in which nodes that were there before are heard again
_LOOPBACK = "127.0.0.1"


class Controller:
    """Bring the cluster to what its file says, turn by turn. Made within an event loop."""

    def __init__(self, actors: Actors, cluster: Cluster, own_ray: RayProcess | None, *, restarted: bool) -> None:
        """Take over the nodes that there are; `own_ray` is the Ray that was started for this cluster alone.

        A controller that was restarted keeps the number of nodes, a new one follows the file.
        """
        self._cluster = cluster
        self._own_ray = own_ray
        self._actors = actors
        self._watches: dict[str, Watch] = {}
        self._began = time.monotonic()
        self._look()
        self._targets = {pool.name: self._first_target(pool, restarted) for pool in cluster.pool}
        self._uncounted = set(self._targets) if restarted else set()  # pools whose targets may have leaving nodes in
        self._ports = cluster.router.ports
        self._scalers = {pool.name: PoolScaler(Limits(pool.least, pool.most)) for pool in cluster.pool if pool.scales}
        self._needed: dict[str, int] = {}  # by pool, of those that scale by load
        self._running = asyncio.create_task(self._run())

    def _first_target(self, pool: Pool, restarted: bool) -> int:
        there = sum(report.pool == pool.name for report in self._reports())
        if restarted:
            return there
        return min(max(there, pool.least, 1 if pool.scales else 0), pool.most)  # one shows that it can start

    async def own_ray(self) -> RayProcess | None:
        """Return the Ray that ends with this cluster."""
        return self._own_ray

    async def status(self) -> ClusterStatus:
        """Return what there is."""
        by_pool = {name: [r for r in self._reports() if r.pool == name] for name in [*self._targets, ROUTER]}
        routers = by_pool.pop(ROUTER)
        pools = (
            PoolStatus(
                name=name,
                revision=self._cluster.pool_of(name).revision,
                target=self._targets[name],
                needed=self._needed.get(name),
                nodes=tuple(nodes),
            )
            for name, nodes in by_pool.items()
        )
        revisions = {name: self._cluster.router.revision(port) for name, port in self._named_ports.items()}
        return ClusterStatus(pools=tuple(pools), routers=tuple(routers), router_revisions=revisions)

    async def scale(self, name: str, count: int) -> str:
        """Set how many nodes a pool should have; return why that cannot be, "" if it can."""
        if name not in self._targets:
            return f"there is no pool {name}: there are {', '.join(self._targets)}"
        pool = self._cluster.pool_of(name)
        if pool.max is not None and not pool.least <= count <= pool.most:
            return f"pool {name} has between {pool.least} and {pool.most} nodes (min and max in the cluster file)"
        if count < (needed := self._needed.get(name, 0)):
            return f"pool {name} needs {needed} nodes for the requests that it has"
        self._targets[name] = count
        self._uncounted.discard(name)
        return ""

    async def drain(self, name: str) -> str:
        """Have a node end what it has begun, and another one take its place; return why that cannot be."""
        for actor, watch in self._watches.items():
            if watch.report.name == name:
                await self._drain(actor)
                return ""
        return f"there is no node {name}: there are {', '.join(sorted(r.name for r in self._reports()))}"

    async def close(self) -> None:
        """Drain all nodes, and then the routers."""
        self._scalers = {}
        self._targets = dict.fromkeys(self._targets, 0)
        self._ports = ()

    @property
    def _named_ports(self) -> dict[str, int]:
        return {f"{ROUTER}-{number}": port for number, port in enumerate(self._ports)}

    def _reports(self) -> list[NodeReport]:
        return [watch.report for watch in self._watches.values()]

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except Exception:
                _log.exception("the next turn tries again")
            await asyncio.sleep(_TURN)

    async def _turn(self) -> None:
        self._look()
        if not self._is_settled():
            return
        while self._uncounted:
            self._leave_out_leaving(self._uncounted.pop())
        for name, scaler in self._scalers.items():
            self._scale_by_load(name, scaler)
        for name in dict.fromkeys([*self._targets, *(report.pool for report in self._reports())]):
            if name != ROUTER:
                await self._keep_pool(name)
        await self._keep_routers()
        await self._tell_routers()

    def _look(self) -> None:
        """Watch the nodes that there are."""
        names = self._actors.names()
        for gone in self._watches.keys() - set(names):
            self._watches.pop(gone).end()
        for name in names:
            if name not in self._watches:
                self._watches[name] = Watch(self._actors, name)

    def _is_settled(self) -> bool:
        """Tell whether the nodes are known: a new controller must not tell routers that there are none."""
        known = all(watch.has_answered for watch in self._watches.values())
        return known or time.monotonic() - self._began > _SETTLING

    def _leave_out_leaving(self, pool: str) -> None:
        """Keep as many nodes as stay: at the restart nobody had told which of them were about to leave."""
        leaving = sum(report.pool == pool and not report.stays for report in self._reports())
        self._targets[pool] = max(0, self._targets[pool] - leaving)

    def _scale_by_load(self, pool: str, scaler: PoolScaler) -> None:
        watches = [watch for watch in self._watches.values() if watch.report.pool == pool]
        loads = {watch.report.name: load for watch in watches if (load := watch.load)}
        awaited = any(pool in report.awaited for report in self._reports())
        if wanted := scaler.after(time.monotonic(), loads, self._targets[pool], awaited=awaited):
            self._targets[pool], self._needed[pool] = wanted.nodes, wanted.needed

    async def _keep_pool(self, name: str) -> None:
        nodes = {actor: watch.report for actor, watch in self._watches.items() if watch.report.pool == name}
        wanted = name in self._targets
        revision = self._cluster.pool_of(name).revision if wanted else ""
        steps = next_steps(self._targets.get(name, 0), revision, list(nodes.values()))
        for _ in range(steps.start):
            self._start(self._cluster.pool_of(name))
        for actor, report in nodes.items():
            if report.name in steps.drain:
                await self._drain(actor)
            elif report.name in steps.remove:
                self._remove(actor)

    async def _keep_routers(self) -> None:
        """Keep a router on each port; one of an old revision drains while all others serve."""
        routers = {actor: watch.report for actor, watch in self._watches.items() if watch.report.pool == ROUTER}
        if not self._ports and any(report.pool != ROUTER for report in self._reports()):
            return  # they go last
        ports = self._named_ports
        for name in ports.keys() - {report.name for report in routers.values()}:
            self._start_router(name, ports[name])
        for actor, report in routers.items():
            if report.phase is Phase.STOPPED:
                self._remove(actor)
            elif report.name not in ports:
                await self._drain(actor)
            elif report.revision != self._cluster.router.revision(ports[report.name]) and all(
                other.phase is Phase.SERVING for other in routers.values() if other is not report
            ):
                await self._drain(actor)
                return

    async def _tell_routers(self) -> None:
        members = members_of(self._reports())
        awake = {member.pool for member in members if not member.draining}
        line = write_membership(members, [pool for pool in self._scalers if pool not in awake])
        for actor, watch in list(self._watches.items()):  # a user may have nodes drained in the meantime
            if watch.report.pool == ROUTER and watch.has_answered:
                with contextlib.suppress(NodeError, TimeoutError):  # it is told again in the next turn
                    async with asyncio.timeout(_ANSWER):
                        await self._actors.tell(actor, line)

    def _start(self, pool: Pool) -> None:
        taken = {report.name for report in self._reports()}
        name = next(name for number in itertools.count() if (name := f"{pool.name}-{number}") not in taken)
        command = ("serve", *([pool.model] if pool.model else []), *pool.options(), "--port=0")
        host = "" if self._own_ray is None else _LOOPBACK  # all of it is on this machine
        self._begin(name, pool.name, pool.revision, command, pool.resources, pool.drain_timeout, host)

    def _start_router(self, name: str, port: int) -> None:
        options = self._cluster.router
        drain = max(pool.drain_timeout for pool in self._cluster.pool)
        hosts = (f"--allowed-hosts={name}" for name in options.allowed_hosts)
        told = (f"--policy={options.policy}", f"--drain-timeout={drain:g}", f"--port={port}")
        origins = (f"--cors-origins={origin}" for origin in options.cors_origins)
        command = (ROUTER, "--nodes=-", *told, *hosts, *origins)
        self._begin(name, ROUTER, options.revision(port), command, options.resources, drain, options.host)

    def _begin(
        self,
        name: str,
        pool: str,
        revision: str,
        command: tuple[str, ...],
        resources: Resources,
        drain: float,
        host: str,
    ) -> None:
        spec = NodeSpec(
            name=name,
            pool=pool,
            revision=revision,
            version=__version__,
            command=command,
            drain_timeout=drain,
            host=host,
        )
        self._actors.start(spec, resources)
        self._look()

    async def _drain(self, actor: str) -> None:
        """Drain a node; one that does not answer is ended."""
        if self._watches[actor].report.phase in (Phase.WAITING, Phase.LOST):
            self._remove(actor)
            return
        with contextlib.suppress(NodeError, TimeoutError):  # it is lost or can be told by a later turn
            async with asyncio.timeout(_ANSWER):
                await self._actors.drain(actor)

    def _remove(self, actor: str) -> None:
        self._watches.pop(actor).end()
        self._actors.remove(actor)


def members_of(reports: Iterable[NodeReport]) -> Sequence[Member]:
    """Return the nodes that routers may know.

    A lost one stays among them with its last URL: routers see for themselves whether it answers.
    """
    return [
        Member(name=report.name, pool=report.pool, url=report.url, draining=report.phase is Phase.DRAINING)
        for report in reports
        if report.url and report.pool != ROUTER
    ]
