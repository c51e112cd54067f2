"""Run a program of this package in a new process: `python -m unifiedserve.worker PROGRAM ARGUMENTS`.

The programs are `zygote` and `new_interpreter`. Both need torch, of which parts are left out first.
"""

import importlib
import sys

from unifiedserve.heap import without_collections
from unifiedserve.kept_texts import begin_keeping
from unifiedserve.models.deferred_torch import import_torch


def main() -> None:
    """Run the process."""
    program = sys.argv.pop(1)
    begin_keeping("workers")
    with without_collections():
        import_torch()
        module = importlib.import_module(f"unifiedserve.worker.{program}")
    module.main()


if __name__ == "__main__":
    main()
