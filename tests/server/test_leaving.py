"""A process ends although a thread of it never does."""

import subprocess
import sys

PROGRAM = """
import atexit, logging, threading, time
from concurrent.futures import ThreadPoolExecutor
from unifiedserve.cli.leaving import leave

atexit.register(print, "at the end")
begun = threading.Event()
ThreadPoolExecutor(1).submit(lambda: (begun.set(), time.sleep(1e6)))
begun.wait()
print("stuck", end=" ")
leave()
print("went on")
"""


def test_a_stuck_thread_is_left_and_the_rest_is_done() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("stuck at the end\n", "")
