"""Name the files of a server's records: one for each run of each instance, as `decode-1.turns`."""

import os
from pathlib import Path

from unifiedserve.errors import ConfigError
from unifiedserve.recording.log import Log

_ENDING = ".turns"


def prepare_folder(folder: Path) -> None:
    """Make the folder if there is none. Raises ConfigError if nothing can be recorded there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--record {folder}: {error.strerror}: give a folder that can be made") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"--record {folder}: not writable: give a folder that the server may write to")
    if runs := runs_in(folder):
        raise ConfigError(f"--record {folder}: {runs[0].name} is there from an earlier server: give an empty folder")


def runs_in(folder: Path) -> list[Path]:
    """Return the files of all runs: by instance, the first run first."""
    return sorted(folder.glob(f"*{_ENDING}"), key=_instance_and_run)


def begin_run(folder: Path, instance: str) -> Log:
    """Begin the next run of an instance."""
    earlier = [run for name, run in map(_instance_and_run, runs_in(folder)) if name == instance]
    return Log(folder / f"{instance}-{max(earlier, default=0) + 1}{_ENDING}")


def _instance_and_run(path: Path) -> tuple[str, int]:
    instance, _, run = path.stem.rpartition("-")
    return instance, int(run) if run.isdecimal() else 0
