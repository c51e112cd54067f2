"""Freed memory goes back when a process has worked and comes to rest, and only then."""

import gc
import subprocess
import sys
from contextlib import suppress

import pytest

from unifiedserve.heap import _Rest, without_collections

PROGRAM = """
import ctypes, gc, os, time
from unifiedserve import heap

heap._LOOK_SECONDS = 0.2
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

blocks = [libc.malloc(60_000) for _ in range(4000)]  # small ones, that the C library keeps
for block in blocks:
    ctypes.memset(block, 1, 60_000)
begin = time.process_time()
while time.process_time() - begin < heap._WORTH_IT:
    pass
for block in blocks[:-1]:  # the last one holds the heap's end
    libc.free(block)
full = resident()
heap.give_back_at_rest()
class Held:  # by itself only
    def __init__(self):
        self.own, self.data = self, bytearray(b"x") * 300_000_000
gc.disable()
Held()
begin = time.process_time()
while time.process_time() - begin < heap._WORTH_IT:
    pass
while resident() > full - 200_000_000:
    time.sleep(0.05)
"""


def test_it_goes_back() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


AT_WORK = """
import ctypes, os, time
from unifiedserve import heap

heap._LOOK_SECONDS = 0.1
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def work(seconds):
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        pass

heap.give_back_at_rest(also_at_work=True)
blocks = [libc.malloc(60_000) for _ in range(1200)]
for block in blocks:
    ctypes.memset(block, 1, 60_000)
full = resident()
work(2.0)  # there is nothing to give back yet
for block in blocks[:-1]:  # the last one holds the heap's end
    libc.free(block)
for _ in range(100):
    work(0.1)
    if resident() < full - 60_000_000:
        break
else:
    raise SystemExit("72 MB were kept")
"""


def test_72_mb_go_back_while_a_process_works() -> None:
    subprocess.run([sys.executable, "-c", AT_WORK], check=True)


@pytest.mark.parametrize(
    ("took", "given_back"),
    [
        ([0.0, 0.0, 0.0], []),  # nothing was done
        ([5.0, 5.0, 0.0, 0.0, 0.0], [2]),  # once
        ([5.0, 0.0, 0.01, 0.0], [1]),
        ([5.0, 1.0, 2.0, 1.0], []),  # no rest
        ([5.0, 0.0, 5.0, 0.0], [1, 3]),
        ([0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05], [10]),  # little by little
    ],
)
def test_once_each_time_that_it_comes_to_rest(took: list[float], given_back: list[int]) -> None:
    clock = iter([0.0, *(sum(took[: i + 1]) for i in range(len(took)))])
    rest = _Rest(lambda: next(clock))
    assert [look for look, _ in enumerate(took) if rest.begins(5.0)] == given_back


def test_a_process_that_never_rests_gives_much_back_after_a_while() -> None:
    clock = iter([5.0 * look for look in range(20)])
    rest = _Rest(lambda: next(clock))
    assert [rest.begins(5.0, has_much=True) for _ in range(13)] == ([False] * 5 + [True]) * 2 + [False]


LARGE = """
import ctypes, os, sys
from unifiedserve import heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

if sys.argv[1:] == ["mapped"]:
    heap.map_large_blocks()
libc.free(libc.malloc(30_000_000))  # from now on the C library would take such blocks from its heap
block, behind = libc.malloc(20_000_000), libc.malloc(100)
ctypes.memset(block, 1, 20_000_000)
full = resident()
libc.free(block)
print(full - resident() > 15_000_000)
"""


@pytest.mark.parametrize(("given", "goes_back"), [(["mapped"], "True"), ([], "False")])
def test_large_blocks_go_back_at_once(given: list[str], goes_back: str) -> None:
    done = subprocess.run([sys.executable, "-c", LARGE, *given], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == goes_back


def test_collections_go_on_as_before() -> None:
    with without_collections():
        with suppress(ImportError), without_collections():
            raise ImportError
        assert not gc.isenabled()
    assert gc.isenabled()
