"""Give the import system a module that a finder has loaded meanwhile: it must not be loaded twice."""

import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType


def spec_of_loaded(name: str) -> ModuleSpec | None:
    """Return what a finder answers about a module that is loaded; None if it is not."""
    module = sys.modules.get(name)
    if module is None:
        return None
    spec = ModuleSpec(name, _Loaded(module))
    module.__spec__ = spec  # which the import system prefers to what is returned
    return spec


class _Loaded(Loader):
    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
