"""Describe the machine in a few words, for files of measured figures."""

import datetime

from unifiedserve import __version__
from unifiedserve.doctor import system


def describe_machine() -> dict[str, str]:
    """Return the processor, cores, memory, date and version of the package."""
    return {
        "cpu": system.cpu().value,
        "cores": system.cores().value,
        "memory": system.memory().value,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": __version__,
    }
