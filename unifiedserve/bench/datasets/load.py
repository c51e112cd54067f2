"""Load a data set from a folder: its samples, and its unusable parts."""

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from unifiedserve.bench.datasets.loader import Loader
from unifiedserve.bench.datasets.registry import DATA_SETS
from unifiedserve.bench.datasets.sample import DataSet, Sample, Unusable, count, first_few
from unifiedserve.errors import ConfigError


def load(name: str, data_dir: Path, *, skip_missing: bool = False, limit: int | None = None) -> DataSet:
    """Read the data set `name` from `data_dir`, in the order of its annotations; at most `limit` samples.

    Raises ConfigError, in one line, if there is no such data set or folder, the folder is another data set's, its
    annotations are damaged, nothing in it can be used, or media files are missing and `skip_missing` is not given.
    """
    loader = DATA_SETS.get(name)
    if loader is None:
        raise ConfigError(f"there is no data set {name!r}; there are {', '.join(DATA_SETS)}")
    folder = _folder(data_dir)
    found = loader.find(folder)
    if found is None:
        raise ConfigError(_not_found(name, loader, folder))
    data_set = _collected(name, loader.read(*found), limit)
    if data_set.missing and not skip_missing:
        raise ConfigError(f"{_missing(data_set, loader, folder)}; --skip-missing goes on with the others")
    if not data_set.samples:
        reasons = data_set.notes() or [f"{name}: no rows of it in {first_few([str(path) for path in found[1]])}"]
        raise ConfigError(f"{'; '.join(reasons)}; nothing is left to ask; expected in {folder}: {loader.layout}")
    return data_set


def _folder(data_dir: Path) -> Path:
    folder = data_dir.expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError(f"{folder}: {'is a file, not a folder' if folder.exists() else 'no such folder'}")
    try:
        empty = next(folder.iterdir(), None) is None
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror}") from error
    if empty:
        raise ConfigError(f"{folder}: is empty")
    return folder


def _not_found(name: str, loader: Loader, folder: Path) -> str:
    others = [other for other, its in DATA_SETS.items() if other != name and its.find(folder)]
    looks = f"looks like {' or '.join(others)}, not {name}" if others else f"has no annotations of {name}"
    return f"{folder}: {looks}; expected: {loader.layout}"


def _collected(name: str, read: Iterable[Sample | Unusable], limit: int | None) -> DataSet:
    samples: dict[str, Sample] = {}
    missing: dict[str, None] = {}
    unusable = []
    exists = cache(os.path.exists)  # many questions are about one file
    for row in read:
        if isinstance(row, Unusable):
            unusable.append(row)
        elif absent := [medium.path for medium in row.media if not exists(medium.path)]:
            missing.update(dict.fromkeys(absent))
        else:
            _add(row, samples)
        if len(samples) == limit:
            break
    return DataSet(name=name, samples=tuple(samples.values()), missing=tuple(missing), unusable=tuple(unusable))


def _add(sample: Sample, samples: dict[str, Sample]) -> None:
    if twin := samples.get(sample.id):
        raise ConfigError(f"{sample.where}: id {sample.id!r} is that of {twin.where} too")
    samples[sample.id] = sample


def _missing(data_set: DataSet, loader: Loader, folder: Path) -> str:
    names = first_few([os.path.relpath(path, folder) for path in data_set.missing])
    number = count(data_set.missing, "media file")
    there = f"{len(data_set.samples)} samples have theirs"
    return f"{data_set.name}: {number} missing in {folder}: {names} ({there}); expected: {loader.layout}"
