"""Have the kernel stop a process when its parent ends. The parent may be a thread: prctl(2), PDEATHSIG."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)  # before a fork, after which nothing should be loaded


def end_with_parent() -> None:
    """Have the kernel kill this process then."""
    signal_parents_end(signal.SIGKILL)


def signal_parents_end(number: signal.Signals) -> None:
    """Have the kernel send this process a signal then."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)
