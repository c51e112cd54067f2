"""Start a worker in an interpreter of its own, where the zygote cannot fork.

`python -m unifiedserve.worker new_interpreter FD PARENT` runs the worker whose `WorkerSpec`, as MessagePack, is in the
file of descriptor FD. PARENT is the zygote's process id.
"""

import os
import subprocess
import sys

import msgspec

from unifiedserve.kept_texts import end_keeping
from unifiedserve.messages.layouts import decode_layout
from unifiedserve.worker.process import become_worker, prepare_interpreter
from unifiedserve.worker.spec import WorkerSpec
from unifiedserve.worker.zygote_messages import Start

_PROGRAM = ("-m", "unifiedserve.worker", "new_interpreter")
_MOST_BYTES = 1 << 16


def start_interpreter(request: Start, standard_error: int | None) -> "subprocess.Popen[bytes]":
    """Start a worker, a child of this process. Raises OSError if it cannot be."""
    file = os.memfd_create("worker-spec")
    nursery = [] if request.spec.nursery is None else [request.spec.nursery]
    try:
        os.write(file, msgspec.msgpack.encode(request.spec))
        return subprocess.Popen(
            [sys.executable, *_PROGRAM, str(file), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stderr=standard_error,
            cwd=request.directory,
            env=os.environ | request.environment,
            pass_fds=[file, *nursery],
        )
    finally:
        os.close(file)


def main() -> None:
    """Run the process."""
    file, parent = map(int, sys.argv[1:])
    spec = msgspec.msgpack.decode(os.pread(file, _MOST_BYTES, 0), type=WorkerSpec, dec_hook=decode_layout)
    os.close(file)
    become_worker(parent, _prepare, spec)


def _prepare() -> None:
    prepare_interpreter()
    end_keeping()
