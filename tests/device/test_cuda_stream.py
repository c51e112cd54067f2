"""Recording on a stream of CUDA: nobody waits for it, and what fails leaves torch's allocator as it was."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from unifiedserve.device.cuda.side_stream import CudaStream

POOL = (0, 7)


class Torch:
    """What torch keeps while a graph is recorded, by the rules of its CUDAGraph and its caching allocator."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.allocating: list[tuple[int, int]] = []  # pools that allocations go to
        self.capturing = False
        self.broken = False  # CUDA has refused something within the capture

    def end_allocation(self, device: int, pool: tuple[int, int]) -> None:
        if pool not in self.allocating:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.allocating.remove(pool)

    def graph(self) -> "Graph":
        return Graph(self)


class Graph:
    def __init__(self, torch: Torch) -> None:
        self._torch = torch

    def capture_begin(self, pool: tuple[int, int], capture_error_mode: str = "global") -> None:
        assert capture_error_mode == "thread_local"
        assert not self._torch.capturing
        assert pool not in self._torch.allocating
        self._torch.allocating.append(pool)
        self._torch.capturing = True

    def capture_end(self) -> None:
        assert self._torch.capturing
        self._torch.capturing = False
        if self._torch.broken:
            raise RuntimeError("operation failed due to a previous error during capture")
        self._torch.end_allocation(0, POOL)

    def replay(self) -> None:
        self._torch.done.append("replay")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Torch:
    def waits(*arguments: object) -> None:
        raise AssertionError("this would wait for the GPU, or take memory from other streams")

    made = Torch()
    stream = type("Stream", (), {"device_index": 0, "synchronize": waits})()

    for name, value in {
        "Stream": lambda device, priority: stream,
        "graph_pool_handle": lambda: POOL,
        "CUDAGraph": made.graph,
        "synchronize": waits,
        "empty_cache": waits,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", made.end_allocation)
    return made


def work_of(fake: Torch) -> Callable[[], object]:
    return lambda: fake.done.append("recorded" if fake.capturing else "done")


def test_work_is_done_once_and_then_recorded(fake: Torch) -> None:
    stream = CudaStream(torch.device("cuda:0"))
    replays = [stream.record(work_of(fake)) for _ in range(2)]
    for replay in replays:
        replay()
    assert fake.done == ["done", "recorded", "done", "recorded", "replay", "replay"]
    assert not fake.allocating


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (True, None),
        (True, RuntimeError("operation not permitted")),
        (False, RuntimeError("operation not permitted")),
        (False, torch.OutOfMemoryError("full")),
    ],
)
def test_a_recording_that_fails_is_ended(fake: Torch, broken: bool, error: Exception | None) -> None:
    """Whether the work gives up or CUDA does, allocations go where they went before."""

    def work() -> Any:
        if fake.capturing:
            fake.broken = broken
            if error:
                raise error

    with pytest.raises(RuntimeError, match="previous error" if broken else str(error)):
        CudaStream(torch.device("cuda:0")).record(work)
    assert not fake.capturing
    assert not fake.allocating
