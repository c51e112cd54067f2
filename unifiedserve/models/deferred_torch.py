"""Import torch without parts that no server needs, until something uses one.

`import torch` brings in its training, export and quantisation, and rules in Python for what runs on no device: four
tenths of the time that it takes. Here a stand-in takes the place of each part, and imports it for the first attribute
that is read. A plain `import` of a part imports it as ever.

A process that may need no torch at all has a stand-in for the whole (`defer_torch`).
"""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from unifiedserve.models.deferred_compiler import defer_compiler
from unifiedserve.models.deferred_graphs import Graphs, are_known
from unifiedserve.models.loaded_module import spec_of_loaded
from unifiedserve.models.quick_registering import quicken_registering
from unifiedserve.models.stand_in import StandIn

PARTS = (
    "torch._meta_registrations",  # for the compiler
    "torch._native",  # kernels for GPUs: see device/cuda/device.py
    "torch.ao",
    "torch.export",
    "torch.hub",
    "torch.masked",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
    "torch.optim",
    "torch.profiler",
    "torch.quantization",
    "torch.utils.data",
    "torchgen.model",
)


def defer_torch() -> None:
    """Have torch imported when somebody reads an attribute of it, unless it has been imported.

    The server's own process computes nothing: it needs torch only where weights have to be made.
    """
    if "torch" not in sys.modules and (spec := importlib.util.find_spec("torch")):
        sys.modules["torch"] = _Torch(spec)
        sys.meta_path.insert(0, _Finder())


def is_torch_deferred() -> bool:
    """Tell whether torch would be imported now if somebody read an attribute of it."""
    return isinstance(sys.modules.get("torch"), _Torch)


def import_torch() -> None:
    """Import torch without these parts, unless it has been imported."""
    if isinstance(deferred := sys.modules.get("torch"), _Torch):
        deferred.real()
    if "torch" in sys.modules:
        return
    parts = [StandIn(name) for name in PARTS]
    for part in parts:
        part.take_place()
    graphs = Graphs() if are_known() else None
    try:
        if graphs:
            graphs.leave_out()
        importlib.import_module("torch")
        if not graphs:
            importlib.import_module("torch._prims.rng_prims")  # one of the parts imports it, and generators need it
    finally:
        for part in parts:
            part.step_back()
    defer_compiler()
    if graphs:
        graphs.watch()
    quicken_registering()


class _Torch(ModuleType):
    """Replace torch until an attribute is read, and then pass on what it has."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        self.__spec__ = spec
        self.__path__ = spec.submodule_search_locations or []
        self._importing = threading.RLock()
        self._real: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real(), name)

    def real(self) -> ModuleType:
        """Import torch, unless it has been, and return it."""
        with self._importing:
            if self._real is None:
                sys.modules.pop("torch", None)
                import_torch()
                self._real = sys.modules["torch"]
                vars(self).update(vars(self._real))
            return self._real


class _Finder(MetaPathFinder):
    """Import torch before a part of it. The part is there then, and must not be loaded twice."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if not (fullname.startswith("torch.") and is_torch_deferred()):
            return None
        import_torch()
        return spec_of_loaded(fullname)
