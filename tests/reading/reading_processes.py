"""Finds the processes that read."""

import psutil

from unifiedserve.reading.keeper import Nursery

PIXELS = 300_000_000


def processes_that_read(nursery: Nursery) -> list[psutil.Process]:
    """Those that the nursery has forked and that live."""
    return psutil.Process(nursery.start()).children()
