"""The table of a cluster: what nodes say of themselves, word for word."""

import io

from rich.console import Console

from unifiedserve.cli.cluster_view import table
from unifiedserve.cluster.nodes.reports import ClusterStatus, NodeReport, Phase, PoolStatus


def test_a_reason_that_looks_like_markup_is_shown_as_it_is() -> None:
    reason = "ended: [rank0] closed [/dev/shm]"
    node = NodeReport(name="a-1", pool="a", revision="1", phase=Phase.FAILED, reason=reason)
    pool = PoolStatus(name="a", revision="1", target=1, needed=None, nodes=(node,))
    console = Console(file=io.StringIO(), width=200)
    console.print(table(ClusterStatus(pools=(pool,), routers=(), router_revisions={})))
    assert reason in console.file.getvalue()  # type: ignore[attr-defined]
