"""Runs items that a test gives: `python gpu_driver.py OUT DEADLINE ITEMS`, the items as JSON.

A process of its own, as the runner ends all processes below it.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from bench.gpu import machine
from bench.gpu.item import Item
from bench.gpu.needs import Needs
from bench.gpu.runner import Runner

if __name__ == "__main__":
    out, deadline, items = sys.argv[1:]
    environment = {**os.environ, machine.CARRIED_VARIABLE: "/nonexistent"}
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(Path(out), Path(scratch), Needs(environment), environment, float(deadline))
        given = [(part, Item(**{**item, "meaning": ""})) for part, item in json.loads(items)]
        sys.exit(130 if runner.run(given, {"device": "a GPU", "commit": "abc"}) else 0)
