"""Describe a data set: where its annotations lie and how they are read."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from unifiedserve.bench.datasets.sample import Sample, Unusable

Read = Callable[[Path, Sequence[Path]], Iterator[Sample | Unusable]]


class Loader(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a data set's layout on disk.

    `annotations` are glob patterns below one of `roots`, which are folders below the user's; `read` gets the first root
    with any, and all of them. `layout` says in words what is expected.
    """

    annotations: tuple[str, ...]
    layout: str
    read: Read
    roots: tuple[str, ...] = (".",)

    def find(self, folder: Path) -> tuple[Path, list[Path]] | None:
        """Return the root and the annotation files in it, or None if there are none."""
        for root in (folder / name for name in self.roots):
            found = sorted({path for pattern in self.annotations for path in root.glob(pattern)})
            if found:
                return root, found
        return None
