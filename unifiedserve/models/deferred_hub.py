"""Leave out of `huggingface_hub` what talks with the hub, while `transformers` is imported.

`transformers` takes a few names of it at its import, and uses them to download and upload. Here each name stands for
what it names, and imports it at its first use. All other imports of these modules find them as ever.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_HUB = "huggingface_hub"
_PARTS = (
    "filelock",  # which it takes to download
    f"{_HUB}._commit_api",
    f"{_HUB}._snapshot_download",
    f"{_HUB}.community",
    f"{_HUB}.hf_api",
    f"{_HUB}.repocard",
    f"{_HUB}.repocard_data",
    f"{_HUB}.utils._fixes",
)


@contextmanager
def hub_deferred() -> Iterator[None]:
    """Replace what is imported from these modules meanwhile, unless they are loaded already."""
    parts = {name: _Part(name) for name in _PARTS if name not in sys.modules}
    sys.modules.update(parts)
    try:
        yield
    finally:
        for name in parts:
            sys.modules.pop(name, None)
        kept = vars(sys.modules[_HUB]) if _HUB in sys.modules else {}
        for name in [name for name, value in kept.items() if type(value) in (_Late, _Part)]:
            del kept[name]


class _Part(ModuleType):
    """Replace a module, and give a stand-in for each name in it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Late(self.__name__, name)


class _Late:
    """Replace a class or a function of a module until it is used."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def _real(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._real()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._real(), name)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._real(),)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._real())

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._real())

    def __or__(self, other: Any) -> Any:  # in an annotation
        return Any

    __ror__ = __or__
