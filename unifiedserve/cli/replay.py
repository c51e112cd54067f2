"""Decide recorded turns again: a line for each run, and the first turn that differs."""

from pathlib import Path

from unifiedserve.errors import ConfigError
from unifiedserve.recording.folder import runs_in
from unifiedserve.recording.replay import Difference, Replayed, replay_file

_DIFFERS = 1


def run(folder: Path) -> int:
    """Replay all runs in a folder up to a difference; return the exit code. Raises ConfigError without any."""
    runs = runs_in(folder)
    if not runs:
        raise ConfigError(f"{folder} holds no records: give the folder that serve --record was given")
    for path in runs:
        replayed = replay_file(path)
        print(_line(path.stem, replayed))
        if replayed.difference:
            print(_told(replayed.difference))
            return _DIFFERS
    return 0


def _line(name: str, replayed: Replayed) -> str:
    cut = "; its last record is cut off" if replayed.cut else ""
    if replayed.difference:
        return f"{name}: turn {replayed.difference.number} differs, {replayed.alike} before it are alike{cut}"
    return f"{name}: {replayed.alike} turns are alike{cut}"


def _told(difference: Difference) -> str:
    facts, recorded = difference.recorded.facts, difference.recorded.decision
    return f"  facts:    {facts}\n  recorded: {recorded}\n  decided:  {difference.decided.decision}"
