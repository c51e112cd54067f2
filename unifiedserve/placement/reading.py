"""Read a placement from a user's text: a name, parts, or a file."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import msgspec

from unifiedserve.errors import ConfigError
from unifiedserve.placement.cores import divide, read_cores, write_cores
from unifiedserve.placement.instances import Instance, Placement, Stage
from unifiedserve.placement.named import NAMED
from unifiedserve.placement.parts import LETTERS, Part, gpus_of, instances_of, split_parts, stages_of

_FILE = ".toml"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    instance: list[Part]


def read_placement(text: str, available: Sequence[int]) -> Placement:
    """Return the placement that a text asks for, over the `available` cores.

    The text is one of `NAMED`, parts such as `2e+1p+1d` or `ep@0-3,mem0 + d@cuda:1`, or the path of a TOML
    file. Raises ConfigError, which says what is wrong with it.
    """
    try:
        return _placement(text, sorted(available))
    except ConfigError as error:
        raise ConfigError(f"--placement {text}: {error}") from error


def _placement(text: str, available: Sequence[int]) -> Placement:
    name = text.strip()
    if name in NAMED:
        return Placement(text, _of_groups(name, available))
    parts = _parts(name)
    return Placement(text, _of_parts(parts, available), gpus=gpus_of(parts))


def _parts(text: str) -> list[Part]:
    if text.endswith(_FILE):
        return _read(Path(text))
    if not text or not (set(text) & set("+@") or set(text.lower()) <= {*LETTERS, *"0123456789"}):
        raise ConfigError(f"expected {', '.join(NAMED)}, parts such as e+p+d or ep@0-3+d@4-5, or a {_FILE} file")
    return split_parts(text)


def _of_groups(name: str, available: Sequence[int]) -> tuple[Instance, ...]:
    groups = NAMED[name]
    if len(groups) == 1:
        return instances_of((Part(letters), ()) for letters in groups[0])
    shares = divide(available, len(groups))
    return instances_of(
        (Part(letters), cores) for group, cores in zip(groups, shares, strict=True) for letters in group
    )


def _of_parts(parts: Sequence[Part], available: Sequence[int]) -> tuple[Instance, ...]:
    given = {part.cores: read_cores(part.cores, available) for part in parts if part.cores}
    for (one, some), (other, more) in combinations(given.items(), 2):
        common = set(some) & set(more)
        if common and set(some) != set(more):
            raise ConfigError(f"@{one} and @{other} both have core {min(common)}: give the same cores, or others")
    left = sorted(set(available) - {core for cores in given.values() for core in cores})
    if given and not left and (lacking := next((part for part in parts if not part.cores), None)):
        raise ConfigError(f"no core is left for {lacking.stages!r}: the other parts have {write_cores(available)}")
    placed = [(part, given[part.cores] if part.cores else left if given else ()) for part in parts]
    hosted = {stage for part in parts for stage in stages_of(part.stages)}
    lacks_vision = Stage.ENCODE in hosted and Stage.VISION not in hosted
    return instances_of([_vision(placed), *placed] if lacks_vision else placed)


def _vision(placed: Sequence[tuple[Part, Sequence[int]]]) -> tuple[Part, Sequence[int]]:
    """Return vision as a part of its own. It has the cores and the memory of the first part that encodes."""
    encoders = ((part, cores) for part, cores in placed if Stage.ENCODE in stages_of(part.stages))
    first, cores = next(encoders, (Part("e"), ()))
    return Part("v", memory=first.home), cores


def _read(path: Path) -> list[Part]:
    """Return the parts of a file; raises ConfigError, which names what is wrong in it."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=_File).instance
    except OSError as error:
        raise ConfigError(f"cannot read the file: {error.strerror}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"in the file: {str(error).replace('`$.', '`')}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"the file is no TOML: {error}") from error
