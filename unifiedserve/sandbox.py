"""Confine a process that reads strangers' data: no network, other programs, processes or most files.

A defect in a decoder that lets a file run code then finds little. The kernel enforces it, for good: Landlock for files,
a seccomp filter for system calls (csrc/file_rules.cpp, csrc/call_filter.cpp).
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from unifiedserve import _core

#: what libraries look at: the machine, the time, their own process, randomness
_SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/self",  # of others only administrators need to know, and their environment may hold secrets
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/driver",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/stat",
    "/proc/sys",
    "/sys",
    "/dev/zero",
    "/dev/urandom",
    "/dev/random",
)
_NULL = "/dev/null"


def missing() -> list[str]:
    """Return what this kernel cannot enforce, each in words."""
    found = []
    if not _core.file_rules_version():
        found.append("files (Landlock)")
    if not _core.has_call_filters():
        found.append("system calls (seccomp)")
    return found


def give_up(*, readable: Iterable[str], writable: Iterable[str] = (), unix_sockets: bool = False) -> None:
    """Leave this process only the files at and below these paths, for good.

    It loses network, programs and other processes. Call it while there is one thread. `unix_sockets` leaves the sockets
    of this machine, abstract ones too: CUDA listens on one from cuInit on, and connects to those of processes whose
    memory it opens. Raises RuntimeError if the kernel refuses; unknown parts are left out (`missing`).
    """
    _core.restrict_files([*_SYSTEM, *readable], [_NULL, *writable], unix_sockets)
    _core.restrict_calls(unix_sockets)


def code_paths() -> list[str]:
    """Return where Python, what it imports and further libraries are."""
    package = Path(__file__).resolve().parents[1]
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return list(dict.fromkeys([sys.prefix, sys.base_prefix, str(package), *filter(None, [*sys.path, *libraries])]))
