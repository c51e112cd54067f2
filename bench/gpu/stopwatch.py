"""How long work takes on a GPU, without what launching it costs: launches are recorded in a graph and replayed."""

import statistics
import time
from collections.abc import Callable

import torch

CALLS, ROUNDS = 20, 7


def seconds(call: Callable[[int], object]) -> float:
    """Return the median time of `call(number)`, of which many with successive numbers run back to back.

    Give each number buffers of its own, so that what one has read is not in the cache for the next.
    """
    warm: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for number in range(3):
            call(number)
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(CALLS):
            call(number)
    return statistics.median(_replayed(graph) for _ in range(ROUNDS))


def issue_seconds(call: Callable[[int], object]) -> float:
    """Return the median time that the host takes to launch `call(number)`, with nothing to wait for."""
    call(0)
    rounds = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for number in range(CALLS):
            call(number)
        rounds.append((time.perf_counter() - start) / CALLS)
    torch.cuda.synchronize()
    return statistics.median(rounds)


def copy_bandwidth() -> float:
    """Return bytes a second that a copy within the GPU moves, reads and writes counted."""
    source, target = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    return 2 * len(source) / seconds(lambda _: target.copy_(source))


def _replayed(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1e3 / CALLS
