"""Place instances and ranks over the NUMA nodes of a machine."""

from collections.abc import Collection, Mapping

import msgspec

from unifiedserve.errors import ConfigError
from unifiedserve.placement.cores import divide
from unifiedserve.placement.instances import FIRST_MEMORY, Instance, Placement, numbered_memory


def place_by_node(placement: Placement, nodes: Mapping[int, Collection[int]]) -> Placement:
    """Return the placement with each instance's pages in the memory of its cores' node.

    `nodes` are the cores of each node. Raises ConfigError where cores of a worker belong to several nodes, or the
    placement names memories itself.
    """
    if placement.memories != [FIRST_MEMORY]:
        raise ConfigError(f"--memories numa: --placement {placement.name} names memories itself: leave one of them out")
    placed = tuple(
        msgspec.structs.replace(instance, memory=numbered_memory(_node(instance, nodes)))
        for instance in placement.instances
    )
    return msgspec.structs.replace(placement, instances=placed)


def _node(instance: Instance, nodes: Mapping[int, Collection[int]]) -> int:
    near = [node for node, cores in nodes.items() if not instance.cores or not set(instance.cores).isdisjoint(cores)]
    if len(near) > 1 and not instance.only_decodes_media:  # that writes where the encoders are
        names = " and ".join(f"node{node}" for node in near)
        raise ConfigError(
            f"--memories numa: the worker {instance.name} may use cores of {names}: "
            "give each worker those of one, as in ep@node0+d@node1"
        )
    return near[0] if near else 0


def cores_of_ranks(nodes: Mapping[int, Collection[int]], ranks: int) -> list[tuple[int, ...]]:
    """Return each rank's cores, about equally many: those of nodes one after the other, so that few ranks span two.

    `nodes` are the cores of each node that the ranks may use.
    """
    return divide([core for cores in nodes.values() for core in sorted(cores)], ranks)


def nodes_of_ranks(nodes: Mapping[int, Collection[int]], ranks: int) -> list[int | None]:
    """Return the node that has all of a rank's cores; None for a rank on several, and where there is one node."""
    if len(nodes) == 1:
        return [None] * ranks
    return [
        next((node for node, near in nodes.items() if set(cores) <= set(near)), None)
        for cores in cores_of_ranks(nodes, ranks)
    ]
