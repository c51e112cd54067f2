"""A worker whose library fails from some moment on is replaced, and its requests go on."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.campaign.faults.kinds import workers_with_faults
from bench.campaign.faults.load import stream
from bench.campaign.faults.trial import Client, engine
from unifiedserve.worker.broken_library import breaks_library

TOKENS = 60

pytestmark = pytest.mark.xdist_group("faults")

# Steps of the worker that is sent SIGUSR1 fail as oneDNN's do once a primitive could not be made.
FAILS_FOR_EVER = """
import signal

def fail(number, frame):
    from unifiedserve.worker.language.forward_step import ForwardStep

    def run(*given, **named):
        raise RuntimeError("could not create a primitive")

    ForwardStep.run = run

signal.signal(signal.SIGUSR1, fail)
from unifiedserve.worker.zygote import main
main()
"""


@pytest.fixture
def breakable() -> Iterator[None]:
    with workers_with_faults(FAILS_FOR_EVER):
        yield


@pytest.mark.usefixtures("breakable")
@pytest.mark.parametrize("instance", ["decode", "encode-prefill"])
async def test_no_request_fails_with_a_broken_library_and_no_other_worker_ends(instance: str) -> None:
    async with engine("shared") as own:
        alone = Client(own, stream(TOKENS), "alone")
        await alone.run()
        before = own.observation.worker_pids()
        under_way = Client(own, stream(TOKENS), "under way")
        task = asyncio.create_task(under_way.run())
        await own.wait_for(lambda: len(under_way.times) > 3)
        os.kill(before[instance], signal.SIGUSR1)
        later = Client(own, stream(TOKENS), "later")
        await asyncio.gather(task, later.run())
        assert under_way.answers == later.answers == alone.answers
        await own.wait_for(lambda: own.healthy)
        after = own.observation.worker_pids()
    assert {name for name in before if after[name] != before[name]} == {instance}


# Convolve images without room for anything new; then, with room, convolve again those that failed.
SHORT_OF_MEMORY = """
import itertools
import resource
from pathlib import Path
import torch

def error(shape):
    size, channels = shape
    try:
        torch.nn.functional.conv2d(torch.ones(1, channels, size, size), torch.ones(channels, channels, 3, 3))
    except RuntimeError as error:
        return str(error)

error((8, 8))
usual = resource.getrlimit(resource.RLIMIT_AS)
failed = []
for shape in itertools.product([7, 17, 33, 65, 129], [32, 64, 256, 512]):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), usual[1]))
    if error(shape):
        failed.append(shape)
    resource.setrlimit(resource.RLIMIT_AS, usual)
print(*filter(None, map(error, failed)), sep="\\n")
"""


def test_what_onednn_keeps_failing_with_is_recognised() -> None:
    """Whether the heap has room left depends on where bytecode comes from: here, from beside the sources."""
    command = [sys.executable, "-B", "-c", SHORT_OF_MEMORY]
    ran = subprocess.run(command, env={"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True)
    errors = set(ran.stdout.split("\n")) - {""}
    if not errors:
        pytest.skip("nothing failed again with room")
    assert {error for error in errors if not breaks_library(RuntimeError(error))} == set()
