"""Read and write sets of cores, and divide them among the parts of a placement."""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

from unifiedserve.errors import ConfigError

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NODE = re.compile(r"node(\d+)")
_NODES = Path("/sys/devices/system/node")


def read_cores(text: str, available: Sequence[int], nodes: Path = _NODES) -> tuple[int, ...]:
    """Return the cores of `0-3,6` or of a NUMA node, `node1`. Raises ConfigError for cores that are not there."""
    cores = _of_node(text, available, nodes) if text.startswith("node") else _of_ranges(text)
    if missing := sorted(set(cores) - set(available)):
        raise ConfigError(f"@{text}: there is no core {missing[0]} here; this process may use {write_cores(available)}")
    return cores


def cores_by_node(available: Collection[int], nodes: Path = _NODES) -> dict[int, tuple[int, ...]]:
    """Return the `available` cores of each NUMA node; those of one node where the kernel tells of none."""
    found = {}
    for folder in nodes.glob("node[0-9]*"):
        cores = (folder / "cpulist").read_text().strip()  # empty: the node has memory alone
        if cores and (own := tuple(core for core in _of_ranges(cores) if core in available)):
            found[int(folder.name.removeprefix("node"))] = own
    return dict(sorted(found.items())) or {0: tuple(available)}


def write_cores(cores: Sequence[int]) -> str:
    """Return cores as they are read: `0-3,6`."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def divide(available: Sequence[int], parts: int) -> list[tuple[int, ...]]:
    """Return the cores of each of so many parts: about equally many, at least one each.

    Where there are fewer cores than parts, neighbours share one.
    """
    ends = [number * len(available) // parts for number in range(parts + 1)]
    return [tuple(available[first : max(end, first + 1)]) for first, end in pairwise(ends)]


def _of_ranges(text: str) -> tuple[int, ...]:
    cores: set[int] = set()
    for word in text.split(","):
        if not (found := _RANGE.fullmatch(word.strip())):
            raise ConfigError(
                f"@{text}: expected cores such as 0-3,6, a NUMA node such as node0, a memory such as mem1, or a GPU "
                "such as cuda:1"
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first > 4096:
            raise ConfigError(f"@{text}: {word.strip()} is no range of cores")
        cores |= set(range(first, last + 1))
    return tuple(sorted(cores))


def _of_node(text: str, available: Sequence[int], nodes: Path) -> tuple[int, ...]:
    """Return the cores of a node that this process may use."""
    found = _NODE.fullmatch(text)
    file = nodes / text / "cpulist"
    if not (found and file.is_file()):
        known = sorted(path.name for path in nodes.glob("node[0-9]*"))
        raise ConfigError(f"@{text}: there is no such NUMA node; there are {', '.join(known) or 'none'}")
    return tuple(core for core in _of_ranges(file.read_text().strip()) if core in set(available))
