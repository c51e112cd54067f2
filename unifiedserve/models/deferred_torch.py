"""Import torch without parts that no server needs, until something uses one.

`import torch` brings in its training, export and quantisation, and rules in Python for what runs on no device: four
tenths of the time that it takes. Here a stand-in takes the place of each part, and imports it for the first attribute
that is read. A plain `import` of a part imports it as ever.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from unifiedserve.models.deferred_compiler import defer_compiler

PARTS = (
    "torch._meta_registrations",  # for the compiler
    "torch.ao",
    "torch.export",
    "torch.masked",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
    "torch.optim",
    "torch.profiler",
    "torch.quantization",
    "torch.utils.data",
)


def import_torch() -> None:
    """Import torch without these parts, unless it has been imported."""
    if "torch" in sys.modules:
        return
    parts = [_Part(name) for name in PARTS]
    sys.modules.update({part.__name__: part for part in parts})
    try:
        importlib.import_module("torch")
        importlib.import_module("torch._prims.rng_prims")  # which one of them imports, and no Generator works before
    finally:
        for part in parts:
            part.step_back()
    defer_compiler()


class _Part(ModuleType):
    """Replace a module, which is imported when an attribute is read."""

    def step_back(self) -> None:
        """Leave the place among all modules, so that imports find the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
            package, _, name = self.__name__.rpartition(".")
            vars(sys.modules[package]).setdefault(name, self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        self.step_back()
        return getattr(importlib.import_module(self.__name__), name)
