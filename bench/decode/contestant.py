"""A process that runs one contestant: tasks in JSON, one a line, on its standard input, results on its output.

python bench/decode/contestant.py peers.pyav
"""

import importlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from checking import shrunk


@dataclass
class Task:
    """Calls of `function` of the module, one a path with its indices, `concurrency` of them at a time.

    `repeat` runs it again and takes the median; `keep` is a file for what came out, shrunk if it is frames.
    """

    kind: str  # "frames", "patches", "analysis" or "floor"
    function: str
    paths: list[str]
    indices: list[list[int]]
    size: tuple[int, int] | None
    threads: int
    concurrency: int = 1
    repeat: int = 1
    keep: str | None = None


def on_host(out: Any) -> npt.NDArray[Any]:
    """Return an array, or what is on a GPU, as an array of NumPy."""
    return out if isinstance(out, np.ndarray) else np.asarray(out.cpu())


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, all its threads, and its children that have ended."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def memory(name: str) -> int:
    """Return bytes of resident memory: now (VmRSS), or the most since `forget_peak` (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def call(module: Any, task: Task) -> list[npt.NDArray[Any]]:
    function: Callable[..., npt.NDArray[Any]] = getattr(module, task.function)
    inputs = zip(task.paths, map(np.array, task.indices), strict=True)
    if task.concurrency == 1:
        return [function(path, indices, task.size, task.threads) for path, indices in inputs]
    with ThreadPoolExecutor(task.concurrency) as pool:
        return list(pool.map(lambda pair: function(*pair, task.size, 1), inputs))


def floor(module: Any, task: Task) -> dict[str, Any]:
    """Sum up the floor over the files; only the decoding is measured."""
    results = [
        module.floor(path, np.array(indices), task.threads)
        for path, indices in zip(task.paths, task.indices, strict=True)
    ]
    means = ("reference_ms", "other_ms")
    return {
        name: (statistics.fmean if name in means else sum)(result[name] for result in results) for name in results[0]
    }


def measured(module: Any, task: Task) -> dict[str, Any]:
    """Measure wall and CPU seconds (the median run's) and peak bytes above the start of the first run."""
    forget_peak()
    before = memory("VmRSS")
    walls, cpus = [], []
    for number in range(task.repeat):
        cpu, wall = cpu_seconds(), time.perf_counter()
        outputs = call(module, task)
        walls.append(time.perf_counter() - wall)
        cpus.append(cpu_seconds() - cpu)
        if number == 0:
            peak = memory("VmHWM") - before
    if task.keep is not None:
        arrays = map(on_host, outputs)
        np.save(task.keep, np.concatenate([shrunk(out) if task.kind == "frames" else out for out in arrays]))
    result = {"wall": statistics.median(walls), "cpu": statistics.median(cpus), "peak": peak}
    return result | {"frames": [len(out) for out in outputs], "bytes": sum(out.nbytes for out in outputs)}


def main() -> None:
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not get between the results
    try:
        module = importlib.import_module(sys.argv[1])
        channel.write(json.dumps({"ready": True}) + "\n")
    except Exception as error:
        channel.write(json.dumps({"error": describe(error)}) + "\n")
        return
    for line in sys.stdin:
        task = Task(**json.loads(line))
        try:
            result = floor(module, task) if task.kind == "floor" else measured(module, task)
        except Exception as error:
            result = {"error": describe(error)}
        channel.write(json.dumps(result) + "\n")


def describe(error: Exception) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"[:200]


if __name__ == "__main__":
    main()
