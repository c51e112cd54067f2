"""Ranks over torch.distributed get what those over shared memory get; gloo stands for NCCL, which needs GPUs."""

import subprocess
import sys

import pytest
import torch

from unifiedserve.device.cuda.exchange import check_backend
from unifiedserve.errors import ConfigError

#: Four ranks, forked as a worker's are, combine the same tensors by both; neighbours share units of the encoder.
RANKS = """
import os, torch
from ipc_buffers import Collective
from unifiedserve.device import CPU
from unifiedserve.device.base import Meeting
from unifiedserve.device.cuda.exchange import join

RANKS, PAIR = 4, 2
name = f"test-exchange-{os.getpid()}"
names = [name, *(f"{name}-{number}" for number in range(RANKS // PAIR))]
arenas = [Collective.create(each, RANKS if each == name else PAIR) for each in names]
ends = [Collective.join(name, rank) for rank in range(RANKS)]
pairs = [Collective.join(f"{name}-{rank // PAIR}", rank % PAIR) for rank in range(RANKS)]
for arena in arenas:
    arena.unlink()
rank, children = 0, []
for number in range(1, RANKS):
    child = os.fork()
    if child == 0:
        rank, children = number, []
        break
    children.append(child)
meeting = Meeting(rank, RANKS, ends[rank], pairs[rank], PAIR, 60.0)
here, there = CPU.exchanges(meeting), join(meeting, "gloo", torch.device("cpu"))


def combined(exchange, dtype):
    values = [torch.arange(size, dtype=dtype) * (rank + 1) for size in (1, 1000)]
    for value in values:
        exchange.all_reduce(value)
    told = torch.full((3, 5), float(rank), dtype=dtype)
    exchange.broadcast(told)
    every = torch.zeros(RANKS if exchange in (here.every, there.every) else PAIR, 7, dtype=dtype)
    exchange.gather(torch.full((7,), float(rank), dtype=dtype), every if exchange.leads else None)
    return [*values, told, every]


for dtype in (torch.float32, torch.bfloat16):
    for ours, theirs in zip(here, there, strict=True):
        assert ours.leads == theirs.leads
        for own, other in zip(combined(ours, dtype), combined(theirs, dtype), strict=True):
            torch.testing.assert_close(own, other)
assert torch.distributed.get_world_size() == RANKS
here.every.all_reduce(torch.zeros(1))  # nobody leaves while others still talk
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
raise SystemExit(max(map(abs, codes), default=0))
"""


def test_ranks_get_the_same_by_both() -> None:
    ran = subprocess.run([sys.executable, "-c", RANKS], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.skipif(torch.distributed.is_nccl_available(), reason="NCCL is there")
def test_says_that_nccl_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"^--tensor-parallel-size 2: torch .* is built without nccl$"):
        check_backend("nccl", 2)
