"""An MPS control daemon of an item's own."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unifiedserve.doctor.libraries import find_program
from unifiedserve.doctor.mps import CONTROL, stop


@contextmanager
def mps_daemon(folder: Path) -> Iterator[dict[str, str]]:
    """Start a daemon with its pipes and logs in a new folder; yield the environment of its clients, and end it.

    The end of its logs goes to standard output.
    """
    environment = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
    for path in environment.values():
        Path(path).mkdir(parents=True)
    command = [str(find_program(CONTROL)), "-d"]
    subprocess.run(command, env={**os.environ, **environment}, check=True, timeout=20)
    try:
        yield environment
    finally:
        stop(environment)
        for log in sorted(Path(folder, "log").glob("*.log")):
            print(f"{log.name}: …{log.read_text(errors='replace')[-2000:]}")
