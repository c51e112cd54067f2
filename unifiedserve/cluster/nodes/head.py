"""Run a Ray of this cluster's own, for one machine: a process that starts it, and ends it with itself."""

import os
import secrets
import signal
import subprocess
import sys

import msgspec
import psutil

from unifiedserve.cluster.nodes.address import address_file
from unifiedserve.config import CLUSTER_KEY
from unifiedserve.errors import ConfigError

_OBJECT_STORE_BYTES = 100 << 20  # nodes exchange no objects, and need /dev/shm themselves


class RayProcess(msgspec.Struct, frozen=True):
    """Describe the process that has started Ray.

    `created`, in seconds since 1970, tells it from a later one of this id.
    """

    pid: int
    created: float

    def end(self) -> None:
        """End Ray and all actors, and wait until that is done; nothing happens if it has ended."""
        try:
            process = psutil.Process(self.pid)
            if process.create_time() == self.created:
                process.terminate()
                process.wait()
        except psutil.NoSuchProcess:
            pass


def start_ray() -> tuple[RayProcess, str]:
    """Start Ray in the background; return its process and its address. Raises ConfigError if it does not start."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    if address := process.stdout.readline().strip():
        return RayProcess(process.pid, psutil.Process(process.pid).create_time()), address
    words = process.stderr.read().strip().splitlines()
    raise ConfigError(f"Ray does not start: {words[-1] if words else f'it ended with code {process.wait()}'}")


def main() -> None:
    """Run Ray until SIGTERM; its address is told in a line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.environ.setdefault("RAY_worker_niceness", "0")  # servers inherit it from their nodes
    os.environ.setdefault(CLUSTER_KEY, secrets.token_hex(32))  # and this
    import ray

    context = ray.init(
        address="local",
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        log_to_driver=False,
    )
    address: str = context.address_info["gcs_address"]
    address_file().write_text(address)
    try:
        print(address, flush=True)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        while True:
            signal.pause()
    finally:
        address_file().unlink(missing_ok=True)


if __name__ == "__main__":
    main()
