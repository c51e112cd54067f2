"""Run `unifiedserve cluster`: nodes on many machines, or several on one."""

import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # Ray takes a second to import
    from unifiedserve.cluster.nodes.client import RunningCluster
    from unifiedserve.cluster.nodes.reports import ClusterStatus

Address = Annotated[
    str,
    typer.Option(
        help="The address of Ray, HOST:PORT. Empty: that of RAY_ADDRESS, or the Ray that runs on this machine"
    ),
]

cluster = typer.Typer(
    name="cluster",
    help="Serve with many engines, on one machine or several, behind one address.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@cluster.command()
def up(
    file: Annotated[Path, typer.Argument(help="The cluster file, with a [[pool]] for each kind of node")],
    address: Address = "",
) -> None:
    """Start the nodes and routers that a cluster file names, and return when they serve.

    If no Ray runs on this machine, one is started, which ends with the cluster. If a cluster is up, it becomes what the
    file says: nodes that it would start otherwise drain and are replaced, one after the other.

    \b
    Two engines of the bundled model behind http://127.0.0.1:8000:
      printf '[[pool]]\\nname = "replicas"\\ncount = 2\\n' > cluster.toml
      unifiedserve cluster up cluster.toml
    On several machines, after `ray start --head` on one and `ray start --address=…` on the others:
      unifiedserve cluster up cluster.toml
    """
    from unifiedserve.cluster.cluster_file import read_cluster

    wanted = read_cluster(file)
    client = _client()
    progress = _Progress()
    progress.say("connecting to Ray")
    own_ray = client.connect_or_start(address)
    try:
        client.check_room(wanted)
        status = client.RunningCluster.begin(wanted, own_ray).wait_ready(progress)
    except BaseException:
        if own_ray:  # nothing was there before
            own_ray.end()
        raise
    nodes = sum(len(pool.nodes) for pool in status.pools)
    urls = ", ".join(router.url for router in status.routers)
    print(f"Serving with {nodes} node{'s' if nodes != 1 else ''} at {urls}")


@cluster.command()
def status(
    address: Address = "", json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table")] = False
) -> None:
    """Show the pools, their nodes and the routers."""
    state = _find(address).status()
    if json:
        import msgspec

        print(msgspec.json.encode(state).decode())
        return
    from rich.console import Console

    from unifiedserve.cli.cluster_view import table

    Console(highlight=False).print(table(state))


@cluster.command()
def scale(
    pool: Annotated[str, typer.Argument(help="The name of the pool")],
    count: Annotated[int, typer.Argument(min=0, help="How many nodes it should have")],
    address: Address = "",
) -> None:
    """Set how many nodes a pool has: others start, or the last ones drain and end."""
    _find(address).scale(pool, count)


@cluster.command()
def drain(
    node: Annotated[str, typer.Argument(help="The name of the node, as `status` shows it")], address: Address = ""
) -> None:
    """Have a node end what it has begun, and another one take its place."""
    _find(address).drain(node)


@cluster.command()
def down(address: Address = "") -> None:
    """Drain all nodes, end the routers, and end Ray if `up` has started it."""
    _find(address).down(_Progress())


def _find(address: str) -> "RunningCluster":
    client = _client()
    client.connect(address)
    running: RunningCluster = client.RunningCluster.find()
    return running


def _client() -> ModuleType:
    """Import Ray, which asks then how it proves its identity: by its token, as it will by default from 2.61 on."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    from unifiedserve.cluster.nodes import client

    return client


class _Progress:
    """Tell on stderr what changes, with the seconds since its beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, status: "ClusterStatus") -> None:
        """Tell of the nodes by their phases."""
        from unifiedserve.cli.cluster_view import phases

        parts = [f"{pool.name}: {phases(pool.nodes)} of {pool.target}" for pool in status.pools]
        self.say(" · ".join([*parts, f"routers: {phases(status.routers)}"]))

    def say(self, words: str) -> None:
        """Tell these words."""
        print(f"{time.monotonic() - self._began:5.1f} s  {words}", file=sys.stderr, flush=True)
