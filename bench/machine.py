"""What a benchmark's figures were measured on."""

import datetime

from unifiedserve import __version__
from unifiedserve.doctor import system


def describe_machine() -> dict[str, str]:
    """Processor, cores, memory, date and version, for the result files."""
    return {
        "cpu": system.cpu().value,
        "cores": system.cores().value,
        "memory": system.memory().value,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": __version__,
    }
