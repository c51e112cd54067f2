"""Have `transformers` list its own modules quickly when it is imported.

It reads the files of all its models, 1,600 or so, to learn the names in each `__all__`. It does so twice, because it
asks by a `Path` and by a string, and looks for `__all__` in every line. That is half of the time of its import.
Here it is done once, and what it finds is kept in the user's cache for as long as the files stay as they are.
"""

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType

from unifiedserve.models.kept_listing import kept_listing
from unifiedserve.user_cache import cache_folder

_MODULE = "transformers.utils.import_utils"
_ALL = "models"  # the folder of all models


def quicken_listing() -> None:
    """Change how the next import of `transformers` lists its modules; the list stays the same."""
    if _MODULE not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Find the module that lists the others, once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        found = PathFinder.find_spec(fullname, path)
        if found is None or found.origin is None:
            return None
        return spec_from_file_location(fullname, found.origin, loader=_Loader(fullname, found.origin))


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if {"fetch__all__", "create_import_structure_from_path"} <= vars(module).keys():  # else another version
            _quicken(module)


def _quicken(module: ModuleType) -> None:
    names, listing = module.fetch__all__, module.create_import_structure_from_path

    def last_names(content: str) -> list[str]:
        found: list[str] = names(content[content.rfind("\n__all__") + 1 :])  # the last one counts
        return found

    @cache
    def listing_of(folder: str) -> dict[object, object]:
        found: dict[object, object]
        if os.path.basename(folder) == _ALL:
            found = kept_listing(folder, cache_folder() / "transformers-models", listing)
        else:
            found = listing(folder)
        return found

    def listing_of_folder(path: str | os.PathLike[str]) -> dict[object, object]:
        return listing_of(os.path.dirname(path) if os.path.isfile(path) else os.fspath(path))

    module.__dict__.update(fetch__all__=last_names, create_import_structure_from_path=listing_of_folder)
