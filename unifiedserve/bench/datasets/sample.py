"""Define the parts of a data set: samples, rows that are none, and files that are not there."""

import msgspec

from unifiedserve.bench.requests import Medium

_NAMED = 3  # files and rows that a note names


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a question about media, whose paths are absolute.

    `choices` are empty if the answer is free; `right` is the index of the right one (None: it is not public); `answers`
    are free answers of people. `follow_ups` are the user's next turns, after an answer each. `where` names the row.
    """

    id: str
    where: str
    question: str
    media: tuple[Medium, ...]
    task: str = ""
    choices: tuple[str, ...] = ()
    right: int | None = None
    answers: tuple[str, ...] = ()
    follow_ups: tuple[str, ...] = ()


class Unusable(msgspec.Struct, frozen=True):
    """Name a row of annotations that makes no sample, and why."""

    where: str
    reason: str


class DataSet(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a data set's usable samples, missing media files, and bad rows."""

    name: str
    samples: tuple[Sample, ...]
    missing: tuple[str, ...] = ()
    unusable: tuple[Unusable, ...] = ()

    def notes(self) -> list[str]:
        """Return a line on missing files and one on unusable rows, if any."""
        notes = []
        if self.missing:
            notes.append(f"{self.name}: {count(self.missing, 'media file')} missing: {first_few(self.missing)}")
        if self.unusable:
            rows = first_few([f"{row.where}: {row.reason}" for row in self.unusable], "; ")
            notes.append(f"{self.name}: {count(self.unusable, 'row')} cannot be used: {rows}")
        return notes


def about_whole_files(data_set: DataSet) -> DataSet:
    """Return a data set without questions on parts of files. No server can be asked those."""
    whole, left_out = list[Sample](), list(data_set.unusable)
    for sample in data_set.samples:
        if _is_about_a_part(sample):
            left_out.append(Unusable(sample.where, "it is about a part of a file"))
        else:
            whole.append(sample)
    return msgspec.structs.replace(data_set, samples=tuple(whole), unusable=tuple(left_out))


def _is_about_a_part(sample: Sample) -> bool:
    return any(medium.start is not None or medium.end is not None for medium in sample.media)


def count(things: tuple[object, ...] | list[str], noun: str) -> str:
    """Return how many there are, in words: 1 row, 2 rows."""
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def first_few(names: tuple[str, ...] | list[str], separator: str = ", ") -> str:
    """Return the first names, in one line, and how many more there are."""
    more = len(names) - _NAMED
    shown = [name if name.isprintable() else ascii(name) for name in names[:_NAMED]]
    return separator.join(shown) + (f" and {more} more" if more > 0 else "")
