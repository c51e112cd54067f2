"""Name workloads for the command line."""

import typing
from pathlib import Path

import msgspec

from unifiedserve.bench.arrivals.parse import Process
from unifiedserve.bench.arrivals.traces.trace import Trace
from unifiedserve.bench.workloads.build import Workload, build
from unifiedserve.bench.workloads.long_videos import ask_all
from unifiedserve.bench.workloads.media.recipes import Codec
from unifiedserve.bench.workloads.mix import load, presets
from unifiedserve.bench.workloads.replay import replay
from unifiedserve.bench.workloads.text import Writer
from unifiedserve.errors import ConfigError

_LONG = {f"long-videos:{codec}": codec for codec in typing.get_args(Codec)}


def names() -> list[str]:
    """Return all names; a file of one's own that ends with .toml is a workload, too."""
    return [*presets(), *_LONG, "trace"]


def named(name: str, process: Process, count: int, seed: int, writer: Writer, folder: Path) -> Workload:
    """Return `count` requests of a workload, or all if it has fewer: long-videos has 100, a trace has its rows.

    `trace` has the requests of the trace that `process` replays. Raises ConfigError if there is no such workload, or
    something in its file makes no sense.
    """
    if name == "trace":
        if not isinstance(process, Trace):
            raise ConfigError("the workload `trace` is the one of a trace's arrivals: write --arrivals trace:FILE")
        return replay(_cut(process, count), seed, writer, folder)
    if name in _LONG:
        return ask_all(_LONG[name], count, seed, writer, folder)
    if name not in presets() and not name.endswith(".toml"):
        raise ConfigError(
            f"there is no workload {name!r}: choose {', '.join(names())}, or write your own in a .toml file"
        )
    return build(load(name), count, seed, writer, folder)


def _cut(trace: Trace, count: int) -> Trace:
    """Return the same trace with at most so many rows."""
    return msgspec.structs.replace(trace, first=min(count, trace.first or count))
