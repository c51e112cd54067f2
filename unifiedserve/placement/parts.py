"""Read a placement as it is written: parts such as `ep@0-3` become instances."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import Annotated

import msgspec
from msgspec import Meta

from unifiedserve.errors import ConfigError
from unifiedserve.placement.instances import (
    FIRST_MEMORY,
    MODEL_STAGES,
    NODE_STAGES,
    Instance,
    Stage,
    numbered_memory,
)

LETTERS = {"v": Stage.VISION, "e": Stage.ENCODE, "p": Stage.PREFILL, "d": Stage.DECODE}
_PART = re.compile(r"(\d{0,3})([a-z]+)(?:@(.*))?", re.IGNORECASE)
_MEMORY = re.compile(r"mem(?:0|[1-9]\d{0,2})")
_GPU = re.compile(r"cuda:(0|[1-9]\d{0,2})")
_EXPECTED = ", ".join(f"{letter} ({stage})" for letter, stage in LETTERS.items())


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Describe so many instances, whose stages have the letters in `stages`.

    They run on `cores` (empty: those that are left), with their pages in `memory` (empty: that of their GPU's number,
    or the first one), which is on the GPU of number `gpu` (None: as other parts have it).
    """

    stages: str
    count: int = 1
    cores: str = ""
    name: str = ""
    memory: str = ""
    gpu: Annotated[int, Meta(ge=0)] | None = None

    @property
    def home(self) -> str:
        """Return the name of the memory that its pages are in."""
        return self.memory or (FIRST_MEMORY if self.gpu is None else numbered_memory(self.gpu))


def split_parts(text: str) -> list[Part]:
    """Return the parts of a text such as `2e + 1p + 1d`. Raises ConfigError."""
    return [_part(word.strip()) for word in text.split("+")]


def stages_of(letters: str) -> tuple[Stage, ...]:
    """Return the stages with these letters, in order. Raises ConfigError for letters that are none."""
    for letter, times in Counter(letters).items():
        if letter not in LETTERS:
            raise ConfigError(f"{letter!r} in {letters!r} is no stage; there are {_EXPECTED}")
        if times > 1:
            raise ConfigError(f"{letters!r} names {LETTERS[letter]} twice")
    if not letters:
        raise ConfigError(f"a part hosts no stage; there are {_EXPECTED}")
    return tuple(stage for letter, stage in LETTERS.items() if letter in letters)


def letters_of(stages: Collection[Stage]) -> str:
    """Return the letters of stages."""
    return "".join(letter for letter, stage in LETTERS.items() if stage in stages)


def instances_of(parts: Iterable[tuple[Part, Sequence[int]]]) -> tuple[Instance, ...]:
    """Return the instances of parts and their cores; several with the same stages are numbered.

    Raises ConfigError where stages or counts are missing, or a memory has a name that is none.
    """
    placed = [(part, stages_of(part.stages), tuple(cores)) for part, cores in parts]
    unnamed = Counter[str]()
    for part, stages, _ in placed:
        if part.count < 1:
            raise ConfigError(f"{part.count}{part.stages}: a part has at least one instance")
        if not _MEMORY.fullmatch(part.home):
            raise ConfigError(f"{part.home!r} is no memory; the names are mem0, mem1 and so on")
        unnamed[_name(stages)] += 0 if part.name else part.count
    made: list[Instance] = []
    numbers = {name: count(1) for name, times in unnamed.items() if times > 1}
    for part, stages, cores in placed:
        own = count(1) if part.name and part.count > 1 else None if part.name else numbers.get(_name(stages))
        name = part.name or _name(stages)
        names = [f"{name}-{next(own)}" if own else name for _ in range(part.count)]
        made += [Instance(each, stages, cores, part.home) for each in names]
    _check(made)
    return tuple(made)


def gpus_of(parts: Iterable[Part]) -> dict[str, int]:
    """Return the number of each memory's GPU, if parts name any.

    Raises ConfigError where a memory has several, or none beside others that have one.
    """
    gpus: dict[str, int] = {}
    parts = list(parts)
    for part in parts:
        if part.gpu is not None and gpus.setdefault(part.home, part.gpu) != part.gpu:
            raise ConfigError(
                f"{part.home} cannot be on cuda:{gpus[part.home]} and on cuda:{part.gpu}: name two memories"
            )
    if gpus and (lacking := next((part.home for part in parts if part.home not in gpus), None)):
        other, gpu = next(iter(gpus.items()))
        raise ConfigError(f"{lacking} has no GPU, and {other} has cuda:{gpu}: name one for each memory, or for none")
    return gpus


def _part(word: str) -> Part:
    if not word:
        raise ConfigError("a part between two + is empty")
    if not (found := _PART.fullmatch(word)):
        raise ConfigError(f"{word!r} is no part; one looks like ep, 2e, d@4-5, d@mem1 or d@cuda:1")
    count, letters, where = found.groups()
    if where is not None and not where.strip():
        raise ConfigError(f"{word!r} names no cores, memory or GPU after @")
    cores, memory, gpu = _where(where or "")
    return Part(letters.lower(), int(count or 1), cores, memory=memory, gpu=gpu)


def _where(text: str) -> tuple[str, str, int | None]:
    """Return the cores, the memory and the GPU in a list such as `0-3,mem1,cuda:1`."""
    words = [word.strip() for word in text.split(",")]
    if len(words) > 1 and "" in words:
        raise ConfigError(f"@{text.strip()}: there is nothing between two commas")
    memories = [word for word in words if _MEMORY.fullmatch(word)]
    if len(memories) > 1:
        raise ConfigError(f"@{text.strip()} names {len(memories)} memories: a part has its pages in one")
    gpus = [word for word in words if _GPU.fullmatch(word)]
    if len(gpus) > 1:
        raise ConfigError(f"@{text.strip()} names {len(gpus)} GPUs: a part computes on one")
    gpu = int(gpus[0].removeprefix("cuda:")) if gpus else None
    return ",".join(word for word in words if word not in memories + gpus), "".join(memories), gpu


def _name(stages: tuple[Stage, ...]) -> str:
    if stages == MODEL_STAGES:
        return "language"
    return "all" if stages == tuple(Stage) else "-".join(stages)


def _check(instances: Sequence[Instance]) -> None:
    hosted = {stage for instance in instances for stage in instance.stages}
    lacking = next((stage for stage in Stage if stage not in hosted), None)
    if lacking and hosted not in map(set, NODE_STAGES):
        raise ConfigError(f"no part hosts {lacking}, and a node of a stage pool hosts v+e or p+d")
    if twice := [name for name, times in Counter(instance.name for instance in instances).items() if times > 1]:
        raise ConfigError(f"two instances have the name {twice[0]!r}")
