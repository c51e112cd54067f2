"""The end of a rank ends its worker, in a line that names it, from its start on."""

import subprocess
import sys

import pytest

#: A worker whose only other rank waits to be ended; it goes on until the watch over its ranks ends it.
WORKER = """
import logging, os, signal, sys
from unittest.mock import Mock
from unifiedserve.worker.ranks import Ranks
logging.basicConfig(format="%(message)s")
rank = os.fork()
if rank == 0:
    signal.pause()
ranks = Ranks(Mock(), {rank: 3})
os.kill(rank, int(sys.argv[1]))
signal.pause()
"""


@pytest.mark.parametrize("number", [9, 15])
def test_the_worker_ends_with_it(number: int) -> None:
    ended = subprocess.run([sys.executable, "-c", WORKER, str(number)], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == f"rank 3 ended with code -{number}, and with it this worker\n"
