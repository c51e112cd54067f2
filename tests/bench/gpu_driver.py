"""Runs items that a test gives: `python gpu_driver.py OUT DEADLINE ITEMS`, the items as JSON.

A process of its own, as the runner ends all processes below it.
"""

import argparse
import json
import sys
from pathlib import Path

from bench.gpu import command, machine
from bench.gpu.item import Item

if __name__ == "__main__":
    out, deadline, items = sys.argv[1:]
    machine.describe = lambda items_environment: {
        "device": "a GPU",
        "commit": "abc",
    }  # looking at the machine takes seconds
    options = argparse.Namespace(
        out=Path(out), deadline=float(deadline), carried=Path("/nonexistent"), sandbox="auto", visit="first", part="all"
    )
    sys.exit(command.run([Item(**{"meaning": "", **item}) for item in json.loads(items)], options))
