"""How long a step takes as the host sees it, and which kernels it spends its time in."""

import cProfile
import pstats
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.profiler import profile

from unifiedserve.device import Device

WARM_UP, ROUNDS, PROFILED, TOP = 3, 20, 3, 15


class Step(NamedTuple):
    """What is issued, and what then waits for its result on the host."""

    issue: Callable[[], Tensor]
    finish: Callable[[Tensor], object] = lambda result: None


class Times(NamedTuple):
    """Medians in seconds: until all was issued, and until all was done."""

    issued: float
    done: float


def measure(step: Step, device: Device) -> Times:
    """Measure a step that has the device for itself."""
    for _ in range(WARM_UP):
        step.finish(step.issue())
    rounds = [_once(step, device) for _ in range(ROUNDS)]
    return Times(*(statistics.median(times) for times in zip(*rounds, strict=True)))


def kernels(step: Step, device: Device) -> tuple[float, list[dict[str, Any]]]:
    """Return the milliseconds that a step spends in kernels, and those that take most of it.

    On the processor these are torch's operators. Raises RuntimeError if the profiler sees none.
    """
    with profile() as trace:
        for _ in range(PROFILED):
            step.finish(step.issue())
        device.fence()
    rows = [
        {
            "kernel": event.key[:120],
            "calls": event.count / PROFILED,
            "ms": (event.self_device_time_total + event.self_cpu_time_total) / 1e3 / PROFILED,
        }
        for event in trace.key_averages()
        if event.device_type.name == device.torch.type.upper()
    ]
    if not rows:
        raise RuntimeError("the profiler saw no kernels")
    rows.sort(key=lambda row: -row["ms"])
    return sum(row["ms"] for row in rows), rows[:TOP]


def host_functions(step: Step, device: Device) -> list[dict[str, Any]]:
    """Return the functions in which the host spends most time of a step, as the profiler sees it, which slows it."""
    profiler = cProfile.Profile()
    for _ in range(PROFILED):
        device.fence()
        profiler.enable()
        result = step.issue()
        profiler.disable()
        step.finish(result)
    found = pstats.Stats(profiler).stats.items()  # type: ignore[attr-defined]
    rows = [
        {"function": f"{Path(file).name}:{line} {name}"[:80], "calls": calls / PROFILED, "ms": 1e3 * own / PROFILED}
        for (file, line, name), (_, calls, own, _, _) in found
    ]
    rows.sort(key=lambda row: -row["ms"])
    return rows[:TOP]


def copy_bandwidth(device: Device, size: int) -> float:
    """Return bytes a second that copies of `size` bytes within the device's memory move, reads and writes counted."""
    source, target = (torch.empty(size, dtype=torch.uint8, device=device.torch) for _ in range(2))
    copies = 10  # so that issuing them counts for nothing

    def copy() -> Tensor:
        for _ in range(copies):
            target.copy_(source)
        return target

    return 2 * size * copies / measure(Step(copy), device).done


def _once(step: Step, device: Device) -> Times:
    device.fence()
    start = time.perf_counter()
    result = step.issue()
    issued = time.perf_counter()
    step.finish(result)
    device.fence()
    return Times(issued - start, time.perf_counter() - start)
