"""Make the actors of a cluster by Ray: nodes and their controller. They are found again by name, and ended."""

import contextlib
import time
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util import get_node_ip_address, list_named_actors

from unifiedserve.cluster.cluster_file import Cluster, Resources
from unifiedserve.cluster.nodes.actors import NodeError
from unifiedserve.cluster.nodes.controller import Controller
from unifiedserve.cluster.nodes.head import RayProcess
from unifiedserve.cluster.nodes.node import Node
from unifiedserve.cluster.nodes.reports import NodeReport, NodeSpec

NAMESPACE = "unifiedserve"
GIB = 1 << 30
_CONTROLLER = "controller"
_LOOK_SECONDS = 0.05
_FOREVER: dict[str, Any] = {"lifetime": "detached", "max_restarts": -1}


class NodeActor(Node):
    """Run a node on the machine on which Ray has placed it."""

    def __init__(self, spec: NodeSpec) -> None:
        super().__init__(spec, get_node_ip_address())


class ControllerActor(Controller):
    """Run the controller of what Ray keeps."""

    def __init__(self, cluster: Cluster, own_ray: RayProcess | None) -> None:
        restarted = ray.get_runtime_context().was_current_actor_reconstructed
        super().__init__(RayActors(), cluster, own_ray, restarted=restarted)


class RayActors:
    """Reach all nodes of the cluster."""

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}

    def names(self) -> list[str]:
        """Return the names of all actors that are nodes."""
        there = sorted((name for name in list_named_actors() if "@" in name), key=lambda name: (len(name), name))
        for name in there:
            if name not in self._handles:
                with contextlib.suppress(ValueError):  # it has ended meanwhile
                    self._handles[name] = ray.get_actor(name)
        return [name for name in there if name in self._handles]

    def start(self, spec: NodeSpec, resources: Resources) -> None:
        """Have Ray start a node when it has room. When it ends, Ray starts it again, here or elsewhere."""
        options = {
            **_FOREVER,
            "name": f"{spec.name}@{spec.revision}",
            "scheduling_strategy": "SPREAD",
            "num_cpus": resources.cpus,
            "num_gpus": resources.gpus,
            "memory": int(resources.memory_gib * GIB),
            "resources": resources.custom,
        }
        ray.remote(NodeActor).options(**options).remote(spec)

    async def report(self, actor: str) -> NodeReport:
        """Return what a node tells, once it can. Raises NodeError."""
        report: NodeReport = await self._ask(actor, "report")
        return report

    async def tell(self, actor: str, line: bytes) -> None:
        """Write a line to a router's standard input. Raises NodeError."""
        await self._ask(actor, "tell", line)

    async def drain(self, actor: str) -> None:
        """Have a node end what it has begun. Raises NodeError."""
        await self._ask(actor, "drain")

    def remove(self, actor: str) -> None:
        """End a node at once, its server with it."""
        ray.kill(self._handles.pop(actor))

    async def _ask(self, actor: str, method: str, *arguments: object) -> Any:
        try:
            return await getattr(self._handles[actor], method).remote(*arguments)
        except (RayError, KeyError) as error:
            raise NodeError(f"{actor}: {error}") from error


def start_controller(cluster: Cluster, own_ray: RayProcess | None) -> Any:
    """Start the controller, which Ray starts again when it has ended; return its handle."""
    options = {**_FOREVER, "name": _CONTROLLER, "num_cpus": 0}
    return ray.remote(ControllerActor).options(**options).remote(cluster, own_ray)


def end_controller(controller: Any) -> None:
    """End a controller, and wait until its name is free for another one."""
    ray.kill(controller)
    while find_controller():
        time.sleep(_LOOK_SECONDS)


def find_controller() -> Any | None:
    """Return the handle of the controller; None if there is none."""
    try:
        return ray.get_actor(_CONTROLLER)
    except ValueError:
        return None
