"""Take turns again from their records: do they still decide what they decided?"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from unifiedserve.errors import ConfigError
from unifiedserve.recording.log import read_log
from unifiedserve.recording.records import Between, Decided, Looked, Made, MadeVision, Record, Taken, decode, encode
from unifiedserve.scheduling.turn import Event, Turn
from unifiedserve.scheduling.turn.vision import MediaCame, MediaLeft, MediaTook, VisionEvent, VisionTurn


class Difference(NamedTuple):
    """Name the turn of this number, from 1 on, that decided otherwise than recorded."""

    number: int
    recorded: Decided
    decided: Decided


class Replayed(NamedTuple):
    """Count turns that were alike, up to the first difference. The record may be `cut` within its last turn."""

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
    """Tell new turns all that is recorded, up to the first decision that differs."""
    turns, alike = _Turns(), 0
    for record in records:
        if not isinstance(record, Decided):
            with suppress(KeyError):  # a turn that raised this went on
                turns.tell(record)
            continue
        decided = turns.decide(record)
        if encode(decided) != encode(record):
            return Replayed(alike, Difference(alike + 1, record, decided))
        alike += 1
    return Replayed(alike)


class _Turns:
    """Hold the turns of one instance: of its language stages and of vision, as far as it hosts them."""

    def __init__(self) -> None:
        self._language: Turn | None = None
        self._vision: VisionTurn | None = None

    def tell(self, record: Made | MadeVision | Event | VisionEvent) -> None:
        """Make a turn, or tell one what has happened."""
        match record:
            case Made():
                self._language = record.turn()
            case MadeVision():
                self._vision = record.turn()
            case MediaCame() | MediaTook() | MediaLeft():
                self._vision_turn.note(record)
            case _:
                self._language_turn.note(record)

    def decide(self, record: Decided) -> Decided:
        """Return the record with what is decided now."""
        match record:
            case Taken():
                return record._replace(decision=self._language_turn.take(record.facts))
            case Between():
                return record._replace(decision=self._language_turn.between(record.facts))
            case Looked():
                return record._replace(decision=self._vision_turn.take(record.facts))

    @property
    def _language_turn(self) -> Turn:
        assert self._language, "the first record makes the turn"
        return self._language

    @property
    def _vision_turn(self) -> VisionTurn:
        assert self._vision, "the first record makes the turn"
        return self._vision


def _decoded(path: Path, found: Iterable[bytes]) -> Iterator[Record]:
    for number, data in enumerate(found, 1):
        try:
            record = decode(data)
        except (msgspec.DecodeError, KeyError) as error:
            raise ConfigError(f"{path}: this version cannot read record {number}: {error}") from error
        if number == 1 and not isinstance(record, Made | MadeVision):
            raise ConfigError(f"{path}: record {number} is out of place: was the file changed?")
        yield record
