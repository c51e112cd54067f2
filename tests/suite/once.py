"""Things that are made once a run, whichever of pytest's workers needs them first."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def run_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder that all workers of this run share."""
    folder = factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


def once(path: Path, make: Callable[[Path], object]) -> Path:
    """Return `path`, a file or a folder that `make(path)` has written, once for all who name it."""
    done = path.with_name(f"{path.name}.done")
    if done.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not done.exists():
            make(path)
            done.touch()
    return path
