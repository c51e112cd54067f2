"""Take the place of a module, and import it when something of it is used."""

import importlib
import sys
from types import ModuleType
from typing import Any


class StandIn(ModuleType):
    """Replace a module, which is imported for the first attribute that was not given."""

    def __init__(self, name: str, **given: Any) -> None:
        super().__init__(name)
        vars(self).update(given)

    def take_place(self) -> None:
        """Let imports find this, unless they have found the module itself."""
        sys.modules.setdefault(self.__name__, self)

    def step_back(self) -> None:
        """Leave the place, so that imports find the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
            package, _, name = self.__name__.rpartition(".")
            if package in sys.modules:
                vars(sys.modules[package]).setdefault(name, self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        self.step_back()
        return getattr(importlib.import_module(self.__name__), name)
