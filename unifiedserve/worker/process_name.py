"""Set the name by which tools show this process."""

import ctypes

_PR_SET_NAME = 15


def rename(name: str) -> None:
    """Set the name (at most 15 characters are kept) that `ps -o comm` and `top` show."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())
