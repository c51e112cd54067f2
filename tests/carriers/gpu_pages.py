"""Two processes with pools on GPUs, one of which reads from the other: `python gpu_pages.py read|fail|host [PLACE]`."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

from ipc_buffers import Bell, MessageQueue, PagePool
from unifiedserve.carriers.base import Copy, Done
from unifiedserve.carriers.choose import open_carrier
from unifiedserve.carriers.setting import Setting
from unifiedserve.errors import ConfigError

PAGES, PAGE_BYTES = 8, 4096
SETTING = Setting("pages on GPUs")


def make(place: str) -> PagePool:
    return PagePool.create(f"test-{os.getpid()}-{place.replace(':', '-')}", PAGES, PAGE_BYTES, place)


def make_bell() -> tuple[MessageQueue, Bell]:
    queue = MessageQueue.create(f"test-{os.getpid()}-bell", 256)
    return queue, Bell(queue, b"")


def fill(pool: PagePool, page: int, value: int) -> None:
    pool.memory.write(page * PAGE_BYTES, bytes([value]) * PAGE_BYTES)


def serve() -> None:
    """Offer pages on the first GPU, and give one away when told to."""
    pool = make("cuda:0")
    queue, bell = make_bell()
    carrier = open_carrier("cuda_ipc", SETTING, bell)
    carrier.register({"kv": pool})
    pages = pool.allocate(4, 1)
    assert pages is not None
    for number, page in enumerate(pages):
        fill(pool, page, number + 1)
    print(json.dumps([carrier.address, pages.tolist(), pool.epochs(pages).tolist()]), flush=True)
    sys.stdin.readline()
    pool.release(pages[:1])
    assert pool.allocate(pool.free_pages(), 2) is not None
    print("given away", flush=True)
    sys.stdin.readline()
    carrier.shut()
    pool.close()
    pool.unlink()
    queue.unlink()


def read(place: str, expected: str) -> None:
    seen = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}  # by this one alone
    source = subprocess.Popen(
        [sys.executable, __file__, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=seen
    )
    assert source.stdin is not None
    assert source.stdout is not None
    address, pages, epochs = json.loads(source.stdout.readline())
    pool = make(place)
    queue, bell = make_bell()
    carrier = open_carrier("cuda_ipc", SETTING, bell)
    carrier.register({"kv": pool})
    into = pool.allocate(4, 1)
    assert into is not None

    def fetch() -> Done:
        transfer = carrier.read(address, [Copy("kv", pages, epochs, into.tolist())])
        queue.receive()
        (done,) = carrier.poll()
        assert done.transfer == transfer
        return done

    done = fetch()
    if expected == "fail":
        print(done.error)
    else:
        assert done.error == "", done.error
        for number, page in enumerate(into):
            assert pool.memory.read(page * PAGE_BYTES, PAGE_BYTES) == bytes([number + 1]) * PAGE_BYTES
        print("read")
        tell(source, "give one away")
        assert fetch().error.endswith("has been taken anew")
        print("stale")
    carrier.shut()
    pool.close()
    pool.unlink()
    queue.unlink()
    source.communicate("end\n")
    if expected == "read":
        assert ctypes.CDLL("libcuda.so.1").fake_cuda_live() <= 2, "contexts and streams"
        print("nothing is left")


def tell(source: subprocess.Popen[str], what: str) -> None:
    assert source.stdin is not None
    assert source.stdout is not None
    source.stdin.write(what + "\n")
    source.stdin.flush()
    source.stdout.readline()


def register_host() -> None:
    pool = make("host")
    queue, bell = make_bell()
    carrier = open_carrier("cuda_ipc", SETTING, bell)
    try:
        carrier.register({"kv": pool})
    except ConfigError as error:
        print(error)
    carrier.shut()
    pool.unlink()
    queue.unlink()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["host"]:
            register_host()
        case [expected, place]:
            read(place, expected)
