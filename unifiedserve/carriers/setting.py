"""Configure a carrier when it is opened."""

import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Site(NamedTuple):
    """Locate a memory: a machine, as `this_machine` names it, and "host" or a GPU, "cuda:N"."""

    machine: str
    place: str
    rdma: bool = False  # the machine reads others' memories by hardware (`rdma.reads_by_hardware`)


@dataclass(frozen=True)
class Setting:
    """State what both sides must agree on, and how one of them listens."""

    #: what pages mean, in one line: model, dtype, tokens a page; both sides' must be the same
    description: str
    #: the secret of all that may read, 64 hexadecimal digits (`secrets.token_hex(32)`); needed by tcp
    token: str = ""
    host: str = "127.0.0.1"
    #: 0: any that is free
    port: int = 0
    #: where others find this machine, if it is not `host`
    advertised: str = ""
    #: seconds that the other side may take to answer, or for a megabyte
    patience: float = 10.0
    #: that copy at once, where this side does the copying
    threads: int = 1


@cache
def this_machine() -> str:
    """Return what tells this machine from others, until it is started again."""
    return _BOOT.read_text().strip() if _BOOT.exists() else socket.gethostname()
