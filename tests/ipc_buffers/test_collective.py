from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from conftest import unique_name
from hypothesis import given
from hypothesis import strategies as st
from ipc_processes import StartWorker

from ipc_buffers import ArenaError, Collective, CollectiveError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@contextmanager
def _ranks(count: int, slot_bytes: int = 1 << 20) -> Iterator[list[Collective]]:
    arena = Collective.create(unique_name(), count, slot_bytes)
    try:
        yield [Collective.join(arena.name, rank) for rank in range(count)]
    finally:
        arena.unlink()


def _together(ranks: list[Collective], work: Callable[[Collective], object]) -> list[object]:
    """Have all ranks do something, each in a thread."""
    with ThreadPoolExecutor(len(ranks)) as threads:
        return list(threads.map(work, ranks))


def _bytes_of(tensor: torch.Tensor) -> np.ndarray:
    return tensor.view(torch.uint8).numpy()


def _sum(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum in float32, in order, rounded once."""
    total = tensors[0].float()
    for tensor in tensors[1:]:
        total = total + tensor.float()
    return total.to(tensors[0].dtype)


@given(
    count=st.integers(1, 4),
    slot_bytes=st.sampled_from([64, 40_000, 1 << 17]),
    operations=st.lists(
        st.tuples(
            st.sampled_from(["float32", "bfloat16", "gather", "gather to one", "broadcast", "barrier"]),
            st.integers(0, 40_000),
        ),
        min_size=1,
        max_size=8,
    ),
    seed=st.integers(0, 2**32),
)
def test_each_rank_gets_what_all_ranks_give(
    count: int, slot_bytes: int, operations: list[tuple[str, int]], seed: int
) -> None:
    chance = torch.Generator().manual_seed(seed)
    given_by = [
        [torch.randn(size, generator=chance).to(_DTYPES.get(name, torch.float32)) for _ in range(count)]
        for name, size in operations
    ]

    def run(rank: Collective) -> None:
        sleeps = random.Random(f"{seed}:{rank.rank}")
        for number, ((name, _), values) in enumerate(zip(operations, given_by, strict=True)):
            time.sleep(sleeps.choice([0, 0, 0, 1e-4]))
            own = values[rank.rank].clone()
            if name in _DTYPES:
                rank.all_reduce(_bytes_of(own), name)
                assert torch.equal(own, _sum(values))
            elif name == "gather":
                whole = torch.empty(count * own.numel())
                rank.all_gather(_bytes_of(own), _bytes_of(whole))
                assert torch.equal(whole, torch.cat(values))
            elif name == "gather to one":
                root = number % count
                whole = torch.empty(count * own.numel())
                rank.gather(root, _bytes_of(own), _bytes_of(whole) if rank.rank == root else None)
                assert rank.rank != root or torch.equal(whole, torch.cat(values))
            elif name == "broadcast":
                rank.broadcast(number % count, _bytes_of(own))
                assert torch.equal(own, values[number % count])
            else:
                rank.barrier()

    with _ranks(count, slot_bytes) as ranks:
        _together(ranks, run)


def test_processes_get_the_same_bits(start: StartWorker) -> None:
    arena = Collective.create(unique_name(), 3, 1 << 12)
    try:
        workers = [start("reduce_often", arena.name, rank, 300) for rank in range(3)]
        digests = [worker.finish() for worker in workers]
    finally:
        arena.unlink()
    assert digests[0] == digests[1] == digests[2]
    right = [np.zeros(5000, np.float32) for _ in range(2)]
    for number in range(300):
        for rank in range(3):
            right[number % 2] += np.random.default_rng([number, rank]).standard_normal(5000, np.float32)
    assert float(digests[0][1]) == pytest.approx(float(sum(map(np.sum, right))), rel=1e-3)


def test_special_values_of_bfloat16() -> None:
    values = [float("inf"), float("nan"), 3.3895e38, -0.0, 1e-40, 1.00390625, 1.01171875]
    parts = [torch.tensor(values, dtype=torch.bfloat16), torch.tensor([1.0, 1.0, 3e38, -0.0, 0, 0, 0]).bfloat16()]

    def run(rank: Collective) -> torch.Tensor:
        own = parts[rank.rank].clone()
        rank.all_reduce(_bytes_of(own), "bfloat16")
        return own

    with _ranks(2) as ranks:
        for found in _together(ranks, run):
            assert torch.equal(torch.as_tensor(found).nan_to_num(7), _sum(parts).nan_to_num(7))


def test_a_rank_that_does_not_come_is_named() -> None:
    with _ranks(3) as (first, second, _):
        for rank, missing in ((first, 1), (second, 2)):
            with pytest.raises(CollectiveError, match=f"rank {missing} has not come to step 1; it is at 0"):
                rank.barrier(timeout=0.05)


def test_a_rank_is_one_process() -> None:
    with _ranks(2) as (first, second):
        _together([first, second], lambda rank: rank.barrier())
        with pytest.raises(ValueError, match="rank 1 has been at work before"):
            Collective.join(first.name, 1)
        with pytest.raises(ValueError, match="has ranks 0 to 1, not 2"):
            Collective.join(first.name, 2)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="1 to 64 ranks, not 0"):
        Collective.create("none", 0)
    with pytest.raises(ValueError, match="a slot has 1 to"):
        Collective.create("none", 2, 0)
    with pytest.raises(ArenaError, match="none"):
        Collective.join("none", 0)
    with _ranks(1) as (only,):
        with pytest.raises(ValueError, match="not int8"):
            only.all_reduce(np.zeros(4, np.float32), "int8")
        with pytest.raises(ValueError, match="6 bytes holds no whole values"):
            only.all_reduce(bytearray(6), "float32")
        with pytest.raises(BufferError):
            only.all_reduce(bytes(8), "float32")
        with pytest.raises(ValueError, match="needs room for 8, not 9"):
            only.all_gather(bytes(8), bytearray(9))
        with pytest.raises(ValueError, match="there is no rank 1"):
            only.broadcast(1, bytearray(4))
        only.close()
        with pytest.raises(ArenaError, match="closed"):
            only.barrier()
