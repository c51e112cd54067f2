"""Define what nodes and the controller tell of themselves."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec


class Phase(StrEnum):
    """Name how far a node is. The first three are the controller's view, because such a node cannot know."""

    WAITING = "waiting"  # Ray has no room for it yet, or starts its process
    LOST = "lost"  # it has been silent for some seconds
    CUT_OFF = "cut off"  # it serves, but cannot be reached over HTTP
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"  # it ends what it has begun
    STOPPED = "stopped"
    FAILED = "failed"  # its server cannot start as configured: a restart would not help


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Specify a node when it is started."""

    name: str
    pool: str
    revision: str  # of the pool, as of its start
    version: str  # of unifiedserve
    command: tuple[str, ...]  # the arguments of `unifiedserve`
    drain_timeout: float  # seconds
    host: str  # to listen on; "": the address of its machine


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Report the state of a node."""

    name: str
    pool: str
    revision: str
    phase: Phase
    url: str = ""  # "" while it does not serve
    machine: str = ""
    pid: int = 0  # of its server; 0: there is none
    restarts: int = 0  # of its server
    awaited: frozenset[str] = frozenset()  # of a router: pools that sleep, for which requests wait
    reason: str = ""  # why it failed, or last restarted

    @property
    def stays(self) -> bool:
        """Tell whether it counts among the nodes of its pool."""
        return self.phase not in (Phase.DRAINING, Phase.STOPPED)


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Report a pool: how many nodes of which revision it should have, and those that it has."""

    name: str
    revision: str
    target: int
    needed: int | None  # for the load that there is, whatever the limit; None: it does not scale by load
    nodes: tuple[NodeReport, ...]


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Report all of a cluster."""

    pools: tuple[PoolStatus, ...]
    routers: tuple[NodeReport, ...]
    router_revisions: dict[str, str]  # of those that there should be, by name

    @property
    def failures(self) -> list[str]:
        """Return a line for each node that cannot start as configured, or cannot be reached."""
        lasting = (Phase.FAILED, Phase.CUT_OFF)
        return [f"{node.name}: {node.reason}" for node in self._all() if node.phase in lasting]

    @property
    def is_ready(self) -> bool:
        """Tell whether all nodes and routers serve that should, and no others are there."""
        return (
            all(node.phase is Phase.SERVING for node in self._all())
            and all([node.revision for node in pool.nodes] == [pool.revision] * pool.target for pool in self.pools)
            and {node.name: node.revision for node in self.routers} == self.router_revisions
        )

    @property
    def is_empty(self) -> bool:
        """Tell whether there are neither nodes nor routers."""
        return not any(True for _ in self._all())

    def _all(self) -> Iterator[NodeReport]:
        yield from self.routers
        for pool in self.pools:
            yield from pool.nodes
