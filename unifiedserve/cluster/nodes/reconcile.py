"""Decide a pool's next steps, from the nodes it should have and has. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from unifiedserve.cluster.nodes.reports import NodeReport, Phase


class Steps(NamedTuple):
    """List what is done next in a pool."""

    start: int = 0  # nodes
    drain: tuple[str, ...] = ()  # names
    remove: tuple[str, ...] = ()


def next_steps(target: int, revision: str, nodes: Sequence[NodeReport]) -> Steps:
    """Return what brings a pool nearer to `target` nodes of this revision.

    Nodes of another revision are replaced. Where there is one only, its successor serves before it drains; of more one
    drains at a time, and those that do not serve anyway leave at once. A new node that fails holds up the others. No
    drain leaves fewer than `target - 1` nodes serving, nor none.
    """
    remove = tuple(node.name for node in nodes if _is_over(node, revision))
    staying = [node for node in nodes if node.stays and node.name not in remove]
    stale = [node for node in staying if node.revision != revision]
    surge = target == 1 and len(stale) == len(staying) == 1
    start = max(0, target + surge - len(staying))
    leaving = _leaving(staying, revision)[: max(0, len(staying) - target)]
    if not leaving and target > 1:
        idle = [node for node in stale if node.phase is not Phase.SERVING]
        leaving = idle or (stale[:1] if _is_calm(nodes) else [])
    return Steps(start, tuple(_sparing(leaving, staying, target)), remove)


def _is_over(node: NodeReport, revision: str) -> bool:
    """Tell whether a node has ended, or failed with what is not wanted any more."""
    return node.phase is Phase.STOPPED or (node.phase is Phase.FAILED and node.revision != revision)


def _is_calm(nodes: Sequence[NodeReport]) -> bool:
    return all(node.phase is Phase.SERVING for node in nodes)


def _leaving(staying: Sequence[NodeReport], revision: str) -> list[NodeReport]:
    """Return the nodes in the order in which they leave: old revisions, then those that do not serve, then the last."""
    last_first = list(reversed(staying))
    return sorted(last_first, key=lambda node: (node.revision == revision, node.phase is Phase.SERVING))


def _sparing(leaving: Sequence[NodeReport], staying: Sequence[NodeReport], target: int) -> list[str]:
    """Return the names of those that may drain now, because enough others serve."""
    least = min(target, max(1, target - 1))
    spare = sum(node.phase is Phase.SERVING for node in staying) - least
    names = []
    for node in leaving:
        if node.phase is Phase.SERVING:
            if spare <= 0:
                continue
            spare -= 1
        names.append(node.name)
    return names
