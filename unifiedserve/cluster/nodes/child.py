"""Run a command of ours that ends with its starter: `python -m …nodes.child PARENT ARGUMENTS`."""

import os
import sys

from unifiedserve.parents_end import end_with_parent


def child_command(arguments: tuple[str, ...]) -> list[str]:
    """Return the command line that runs `unifiedserve` with these arguments until this process ends."""
    return [sys.executable, "-m", __name__, str(os.getpid()), *arguments]


def main() -> None:
    """Become the command; it is killed when the thread that started it ends."""
    end_with_parent()
    parent, *arguments = sys.argv[1:]
    if os.getppid() == int(parent):  # else it died before the line above took hold
        os.execv(sys.executable, [sys.executable, "-m", "unifiedserve.cli", *arguments])


if __name__ == "__main__":
    main()
