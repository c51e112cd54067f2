"""Define what the controller asks of the keeper of its nodes."""

from typing import NamedTuple, Protocol

from unifiedserve.cluster.cluster_file import Resources
from unifiedserve.cluster.nodes.reports import NodeReport, NodeSpec


class NodeError(Exception):
    """Signal a node that has ended, or cannot be reached."""


class NodeName(NamedTuple):
    """Read the name of a node's actor, such as `text-0@5f2e81aa`: it outlives every controller."""

    name: str
    pool: str
    revision: str

    @classmethod
    def of(cls, actor: str) -> "NodeName":
        """Read the name of an actor."""
        name, _, revision = actor.partition("@")
        return cls(name, name.rpartition("-")[0], revision)


class Actors(Protocol):
    """Reach all nodes of a cluster, by the names of their actors."""

    def names(self) -> list[str]:
        """Return the names of all that there are, or that wait for room."""

    def start(self, spec: NodeSpec, resources: Resources) -> None:
        """Have a node started when there is room. When it ends, it is started again, here or elsewhere."""

    async def report(self, actor: str) -> NodeReport:
        """Return what a node tells, once it can. Raises NodeError."""

    async def tell(self, actor: str, line: bytes) -> None:
        """Write a line to a router's standard input. Raises NodeError."""

    async def drain(self, actor: str) -> None:
        """Have a node end what it has begun. Raises NodeError."""

    def remove(self, actor: str) -> None:
        """End a node at once, its server with it."""
