"""Control a cluster as the commands of its user see it."""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayError

from unifiedserve.cluster.cluster_file import Cluster
from unifiedserve.cluster.nodes.address import local_address, reach
from unifiedserve.cluster.nodes.head import RayProcess, start_ray
from unifiedserve.cluster.nodes.ray_actors import (
    GIB,
    NAMESPACE,
    end_controller,
    find_controller,
    start_controller,
)
from unifiedserve.cluster.nodes.reports import ClusterStatus
from unifiedserve.errors import ConfigError

OnChange = Callable[[ClusterStatus], None]

_LOOK_SECONDS = 0.25
_ANSWER_SECONDS = 10.0
_ADDRESS = "RAY_ADDRESS"


def connect(address: str) -> None:
    """Connect to the Ray at an address. The default is that of RAY_ADDRESS, then that of this machine.

    Raises ConfigError if there is none.
    """
    address = address or os.environ.get(_ADDRESS, "")
    if not address and not (address := local_address()):
        raise ConfigError("no Ray runs on this machine: unifiedserve cluster up FILE starts one")
    reach(address)
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, RayError) as error:
        raise ConfigError(f"Ray at {address} takes no connection: {error}") from error


def connect_or_start(address: str) -> RayProcess | None:
    """Connect as `connect` does; where no Ray is named or there, start one, and return its process."""
    if address or os.environ.get(_ADDRESS) or local_address():
        connect(address)
        return None
    process, address = start_ray()
    try:
        connect(address)
    except ConfigError:
        process.end()
        raise
    return process


def check_room(cluster: Cluster) -> None:
    """Raise ConfigError if all machines together have less than the fewest nodes need."""
    needed: Counter[str] = Counter()
    counted = [(pool.resources, pool.least) for pool in cluster.pool]
    for each, count in [*counted, (cluster.router.resources, len(cluster.router.ports))]:
        wanted = {"CPU": each.cpus, "GPU": each.gpus, "memory": each.memory_gib * GIB, **each.custom}
        needed.update({name: amount * count for name, amount in wanted.items()})
    there = ray.cluster_resources()
    for name, amount in needed.items():
        if amount > there.get(name, 0.0):
            unit, word = (GIB, "GiB of memory") if name == "memory" else (1, name)
            raise ConfigError(
                f"nodes and routers need {amount / unit:g} {word} together, and Ray has {there.get(name, 0.0) / unit:g}"
            )


class RunningCluster:
    """Reach the controller of a cluster that is up. Each method raises ConfigError if it does not answer."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller

    @classmethod
    def begin(cls, cluster: Cluster, own_ray: RayProcess | None) -> "RunningCluster":
        """Start a cluster, or bring the one that is up to what another file says."""
        if controller := find_controller():
            own_ray = cls(controller)._ask("own_ray")
            end_controller(controller)
        return cls(start_controller(cluster, own_ray))

    @classmethod
    def find(cls) -> "RunningCluster":
        """Return the cluster that is up. Raises ConfigError if none is."""
        if controller := find_controller():
            return cls(controller)
        raise ConfigError("no cluster is up: unifiedserve cluster up FILE starts one")

    def status(self) -> ClusterStatus:
        """Return what there is."""
        status: ClusterStatus = self._ask("status")
        return status

    def scale(self, pool: str, count: int) -> None:
        """Set how many nodes a pool should have. Raises ConfigError that says why that cannot be."""
        self._or_refuse(self._ask("scale", pool, count))

    def drain(self, node: str) -> None:
        """Have a node end what it has begun, and another one take its place. Raises ConfigError if it is none."""
        self._or_refuse(self._ask("drain", node))

    def wait_ready(self, on_change: OnChange) -> ClusterStatus:
        """Return when all nodes serve that should. Raises ConfigError if one cannot start as configured."""
        status = self._follow(on_change, lambda status: status.is_ready or bool(status.failures))
        if status.failures:
            raise ConfigError(status.failures[0])
        return status

    def down(self, on_change: OnChange) -> None:
        """Drain all nodes, then the routers, and end what was started for the cluster."""
        own_ray: RayProcess | None = self._ask("own_ray")
        self._ask("close")
        self._follow(on_change, lambda status: status.is_empty)
        end_controller(self._controller)
        ray.shutdown()
        if own_ray:
            own_ray.end()

    def _follow(self, on_change: OnChange, is_over: Callable[[ClusterStatus], bool]) -> ClusterStatus:
        last = None
        while True:
            status = self.status()
            if status != last:
                on_change(status)
                last = status
            if is_over(status):
                return status
            time.sleep(_LOOK_SECONDS)

    def _ask(self, method: str, *arguments: object) -> Any:
        try:
            return ray.get(getattr(self._controller, method).remote(*arguments), timeout=_ANSWER_SECONDS)
        except RayError as error:
            raise ConfigError(f"the cluster's controller does not answer: {error}") from error

    @staticmethod
    def _or_refuse(reason: str) -> None:
        if reason:
            raise ConfigError(reason)
