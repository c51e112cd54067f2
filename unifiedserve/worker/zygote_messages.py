"""What the engine and the zygote that forks its workers say to each other."""

import socket

import msgspec

from unifiedserve.worker.spec import WorkerSpec

_MESSAGE_BYTES = 1 << 16  # more than any message takes


class Preload(msgspec.Struct, frozen=True, tag=True):
    """Request to import what the workers of this checkpoint will need, before they are asked for."""

    model_dir: str  # absolute


class Fork(msgspec.Struct, frozen=True, tag=True):
    """Request for a worker, which starts in `directory` with `environment` added to the zygote's.

    The descriptor of its standard error travels beside the message.
    """

    spec: WorkerSpec
    directory: str
    environment: dict[str, str]


class Forked(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Fork`: the process id. A descriptor of the process (pidfd) travels beside the message."""

    pid: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Answer to `Fork` if a forked process would not work."""

    reason: str


class Exited(msgspec.Struct, frozen=True, tag=True):
    """End of a worker: its exit code, or minus the number of the signal that killed it."""

    pid: int
    code: int


ToZygote = Preload | Fork
FromZygote = Forked | Refused | Exited


def receive(peer: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next message and the descriptors beside it; an empty message once the peer is gone."""
    try:
        data, descriptors, _, _ = socket.recv_fds(peer, _MESSAGE_BYTES, 1)
    except ConnectionResetError:  # it went without having read all that we sent
        return b"", []
    return data, descriptors
