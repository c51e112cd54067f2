"""Show a cluster in the terminal."""

from collections import Counter
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from unifiedserve.cluster.nodes.reports import ClusterStatus, NodeReport, Phase

_STYLES = {Phase.SERVING: "green", Phase.FAILED: "red", Phase.LOST: "red", Phase.CUT_OFF: "red"}


def table(status: ClusterStatus) -> Table:
    """Return a row for each router and node."""
    rows = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("pool", "node", "phase", "url", "machine", "restarts", "why"):
        rows.add_column(title, justify="right" if title == "restarts" else "left")
    _add(rows, "routers", status.routers)
    for pool in status.pools:
        needs = "" if pool.needed is None else f", needs {pool.needed}"
        _add(rows, f"{pool.name} ({pool.target}{needs})", pool.nodes)
    return rows


def phases(nodes: Iterable[NodeReport]) -> str:
    """Return how many nodes are how far, such as "2 serving, 1 starting"."""
    counts = Counter(node.phase for node in nodes)
    return ", ".join(f"{counts[phase]} {phase}" for phase in Phase if counts[phase]) or "none"


def _add(rows: Table, name: str, nodes: Iterable[NodeReport]) -> None:
    for node in nodes:
        phase = Text(node.phase, _STYLES.get(node.phase, "yellow"))
        rows.add_row(name, node.name, phase, node.url, node.machine, f"{node.restarts}", Text(node.reason))
        name = ""
    if name:
        rows.add_row(name, "–")
