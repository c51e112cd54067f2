"""Turns made anew from their records: do they still decide what they decided?"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from unifiedserve.errors import ConfigError
from unifiedserve.recording.log import read_log
from unifiedserve.recording.records import Between, Made, Record, Taken, decode, encode
from unifiedserve.scheduling.turn import Decision, Facts


class Difference(NamedTuple):
    """The turn of this number, from 1 on, decided otherwise than recorded."""

    number: int
    facts: Facts
    recorded: Decision
    decided: Decision


class Replayed(NamedTuple):
    """So many turns were alike, up to the first difference; the record may be `cut` within its last turn."""

    alike: int
    difference: Difference | None = None
    cut: bool = False


def replay_file(path: Path) -> Replayed:
    """Replay the turns of one run. Raises ConfigError if this version cannot read the file."""
    try:
        found, cut = read_log(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if not found:  # the worker was killed at once
        return Replayed(0, cut=cut)
    return replay(_decoded(path, found))._replace(cut=cut)


def replay(records: Iterable[Record]) -> Replayed:
    """Tell a new turn all that is recorded, up to the first decision that differs."""
    made, *told = records
    assert isinstance(made, Made), "the first record makes the turn"
    turn, alike = made.turn(), 0
    for record in told:
        assert not isinstance(record, Made), "a turn is made once"
        if not isinstance(record, Taken | Between):
            with suppress(KeyError):  # a turn that raised this went on
                turn.note(record)
            continue
        decide = turn.take if isinstance(record, Taken) else turn.between
        decided = decide(record.facts)
        if encode(record._replace(decision=decided)) != encode(record):
            return Replayed(alike, Difference(alike + 1, record.facts, record.decision, decided))
        alike += 1
    return Replayed(alike)


def _decoded(path: Path, found: Iterable[bytes]) -> Iterator[Record]:
    for number, data in enumerate(found, 1):
        try:
            record = decode(data)
        except (msgspec.DecodeError, KeyError) as error:
            raise ConfigError(f"{path}: this version cannot read record {number}: {error}") from error
        if isinstance(record, Made) != (number == 1):
            raise ConfigError(f"{path}: record {number} is out of place: was the file changed?")
        yield record
