"""List the placements over some devices: methods by the stages that share one, and counts."""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import msgspec

from unifiedserve.placement.cores import write_cores
from unifiedserve.profiles import DeviceSize

Processes = tuple[str, ...]  # on a device, each by its stages' letters

SHARED: Processes = ("v", "ep", "d")
#: the kinds of devices (or of groups of cores) of each method; vision is where media are encoded
METHODS: dict[str, tuple[Processes, ...]] = {
    "shared": (SHARED,),  # UnifiedServe
    "monolithic": (("v", "epd"),),  # one loop, HydraInfer's general instances
    "e,p,d": (("v", "e", "p", "d"),),
    "ep+d": (("v", "ep"), ("d",)),  # HydraInfer, ModServe, DistServe
    "ed+p": (("v", "ed"), ("p",)),  # HydraInfer
    "e+pd": (("v", "e"), ("pd",)),
    "e+p+d": (("v", "e"), ("p",), ("d",)),  # EPD, HydraInfer
    "e,p+d": (("v", "e", "p"), ("d",)),
    "e+shared": (("v", "e"), SHARED),
    "shared+d": (SHARED, ("d",)),
    "shared+p": (SHARED, ("p",)),
}
_PARALLEL: dict[str, tuple[Processes, ...]] = {"2e,p,d": (("v", "2e", "p", "d"),), "2ep,d": (("v", "2ep", "d"),)}
_MANY_CORES = 4  # where several processes of a stage have some each
_SPLITS = 8  # a machine's cores are divided in eighths


class Layout(msgspec.Struct, frozen=True):
    """Describe a placement of a method.

    It has counts of devices (on a CPU: cores) by kind, and the text for `--placement`.
    """

    method: str
    counts: tuple[int, ...]
    placement: str
    devices: int = 1

    @property
    def label(self) -> str:
        """Return a short name: the placement itself, or how many GPUs run which processes."""
        if "cuda" not in self.placement:
            return self.placement
        return " + ".join(
            f"{count} x {','.join(kind)}" for count, kind in zip(self.counts, kinds_of(self.method), strict=True)
        )


def kinds_of(method: str) -> tuple[Processes, ...]:
    """Return the kinds of devices of a method."""
    return (METHODS | _PARALLEL)[method]


def layouts(device: DeviceSize, devices: int) -> list[Layout]:
    """Return all placements over exactly so many GPUs, or over the cores of one machine."""
    return list(_on_gpus(devices) if device.kind == "cuda" else _on_cores(device.cores))


def _on_gpus(devices: int) -> Iterator[Layout]:
    for method, kinds in METHODS.items():
        for counts in _divisions(devices, len(kinds)):
            of_each = [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]
            parts = [f"{letters}@cuda:{gpu}" for gpu, kind in enumerate(of_each) for letters in kind]
            yield Layout(method, counts, "+".join(parts), devices)


def _on_cores(cores: int) -> Iterator[Layout]:
    parallel = _PARALLEL if cores >= _MANY_CORES else {}
    for method, kinds in (METHODS | parallel).items():
        if len(kinds) == 1:
            yield Layout(method, (cores,), "+".join(kinds[0]))
        else:
            yield from _split(method, kinds, cores)


def _split(method: str, kinds: Sequence[Processes], cores: int) -> Iterator[Layout]:
    """Yield the method with groups of cores, in multiples of an eighth of all."""
    step = max(1, cores // _SPLITS)
    for sizes in _divisions(cores // step, len(kinds)):
        counts = tuple(size * step for size in sizes[:-1])
        counts += (cores - sum(counts),)
        ends = [sum(counts[:number]) for number in range(len(counts) + 1)]
        groups = [write_cores(range(*span)) for span in pairwise(ends)]
        parts = [f"{letters}@{group}" for kind, group in zip(kinds, groups, strict=True) for letters in kind]
        yield Layout(method, counts, "+".join(parts))


def _divisions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to divide so many into parts of at least one, in order."""
    for cuts in combinations(range(1, total), parts - 1):
        yield tuple(end - start for start, end in pairwise((0, *cuts, total)))
