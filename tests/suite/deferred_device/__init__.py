"""A stand-in for a GPU: a device of torch, "deferred", on which nothing is computed before the host waits for it.

Operations are queued in program order and done by `synchronize`, by copies to the host, `.item()` and operations whose
results' sizes depend on values. Until then host memory under a `view` is what it was, and new memory holds NaN or 0xCD.
Tensors of the host and of the device do not mix. There are no random numbers, no streams and no events.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from torch import Tensor

from .backend import DeviceModule, register
from .operations import launch
from .stream import stream
from .tensor import NAME, wrap

__all__ = [
    "copies",
    "finish",
    "install",
    "launch",
    "mark",
    "pending",
    "process",
    "record",
    "reset",
    "synchronize",
    "uploads",
    "view",
    "waits",
]


def install() -> None:
    """Make the device known to this process as `torch.device("deferred", 0)`; a second call does nothing."""
    register()


def view(host: Tensor) -> Tensor:
    """Make a tensor of the device over a host tensor's own memory, which is written when the host waits.

    Raises ValueError for a tensor that is not of the host.
    """
    if host.device.type != "cpu":
        raise ValueError(f"only a tensor of the host has memory for {NAME} to use, not one of {host.device}")
    return wrap(host)


def process(name: str) -> AbstractContextManager[None]:
    """Queue what is done meanwhile as the process of that name, whose work waits for nobody else's."""
    return stream.of(name)


def synchronize() -> None:
    """Do all work that is queued. Raises RuntimeError if some of it fails."""
    DeviceModule().synchronize()


def finish() -> None:
    """Do all work that is queued, of every process that this one stands for."""
    stream.run_all()


def mark() -> Callable[[], None]:
    """Return what does the work that is queued by now, of this process."""
    place = stream.mark()
    return lambda: stream.run(place)


def record(work: Callable[[], object]) -> Callable[[], None]:
    """Keep what the work would queue, and return what queues it: the same operations on the same memory.

    Raises RuntimeError if the host waits, marks or copies to the device within the work.
    """
    with stream.recording() as recorded:
        work()
    return lambda: stream.repeat(recorded)


def pending() -> int:
    """Return how many operations are queued."""
    return stream.pending


def waits() -> list[str]:
    """Return the operations since `reset` for which the host waited; calls of `synchronize` are not among them."""
    return list(stream.waits)


def copies() -> list[str]:
    """Return the operations since `reset` that copied an index from the host to the device."""
    return list(stream.copies)


def uploads() -> int:
    """Return how many blocking copies to the device there were since `reset`; on a GPU the host waits for each."""
    return stream.uploads


def reset() -> None:
    """Begin to count anew; work stays queued."""
    stream.reset()
