"""Define what the engine and the zygote that forks its workers say to each other."""

import socket

import msgspec

from unifiedserve.worker.spec import WorkerSpec

_MESSAGE_BYTES = 1 << 16  # more than any message takes
_MOST_DESCRIPTORS = 2


class Preload(msgspec.Struct, frozen=True, tag=True):
    """Ask to import what the workers of this checkpoint will need, before they are wanted."""

    model_dir: str  # absolute
    dtype: str  # of its activations, or "auto"


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Request to end: the engine goes on, or cleans up itself."""


class Start(msgspec.Struct, frozen=True, tag=True):
    """Request for a worker, which starts in `directory` with `environment` added to the zygote's.

    Beside the message travel the descriptors of its `nursery`, if it has one, and then of its standard error.
    """

    spec: WorkerSpec
    directory: str
    environment: dict[str, str]
    nursery: bool = False


class Started(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Start`: the process id. A descriptor of the process (pidfd) travels beside the message.

    `obstacles` says why the worker was not forked but got an interpreter of its own; it is empty after a fork.
    """

    pid: int
    obstacles: str = ""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Start` if the system starts no process."""

    reason: str


class Exited(msgspec.Struct, frozen=True, tag=True):
    """End of a worker: its exit code, or minus the number of the signal that killed it."""

    pid: int
    code: int


ToZygote = Preload | Leave | Start
FromZygote = Started | Refused | Exited


def receive(peer: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next message and the descriptors beside it; an empty message once the peer is gone."""
    try:
        data, descriptors, _, _ = socket.recv_fds(peer, _MESSAGE_BYTES, _MOST_DESCRIPTORS)
    except ConnectionResetError:  # it went without having read all that we sent
        return b"", []
    return data, descriptors
