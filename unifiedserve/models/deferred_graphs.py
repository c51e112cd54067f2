"""Leave out of torch what works on graphs of programs, until something uses it.

`torch.fx`, functional transforms, higher-order operators, nested tensors and distributions import each other in
circles: a quarter of the time that `import torch` takes. They can be imported in torch's own order only, so the first
use of one of them imports them all. The names that torch takes from them meanwhile are known of one version.
"""

import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.metadata import version
from types import MappingProxyType, ModuleType
from typing import Any

from unifiedserve.models.loaded_module import spec_of_loaded

_VERSION = "2.13."
#: torch's own order; the others come with these
_IN_ORDER = (
    "torch.nested",
    "torch.func",
    "torch._higher_order_ops",
    "torch.distributions",
    "torch._meta_registrations",
)
_SIGNATURES = "_SCHEMA_TO_SIGNATURE_CACHE"  # operators' libraries remove theirs from it
_OPTIONS = "NestedCompileRegionOptions"
_INTEGERS = "DynamicInt"  # any index may be one; none can exist before the modules do
_CLASSES = (_OPTIONS, _INTEGERS)
#: names that torch takes from each module while it is imported, and `transformers` later
_TAKEN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "torch._dynamo._trace_wrapped_higher_order_op": ("TransformGetItemToIndex",),
        "torch._higher_order_ops": ("cond", "while_loop"),
        "torch._higher_order_ops.invoke_subgraph": (_OPTIONS,),
        "torch.distributions": (),
        "torch.distributions.constraints": (),
        "torch.func": ("vmap",),
        "torch.fx": (),
        "torch.fx.experimental": (),
        "torch.fx.experimental.sym_node": (_INTEGERS,),
        "torch.fx.operator_schemas": (_SIGNATURES,),
        "torch.fx.traceback": (),
        "torch.nested": ("nested_tensor",),
        "torch.utils.checkpoint": ("checkpoint",),
    }
)
_DEVICES = "torch.utils._device"
_ALONE = (_DEVICES, "torch._native", "torch._tensor_iterator")  # parts that work without these modules


def are_known() -> bool:
    """Tell whether the installed torch is of the version whose modules can be left out."""
    return version("torch").startswith(_VERSION)


class Graphs:
    """Hold the places of these modules until one of them is used."""

    def __init__(self) -> None:
        torch = importlib.util.find_spec("torch")
        folders = (torch and torch.submodule_search_locations) or []
        self._stand_ins = {name: _StandIn(name, folders, self) for name in _TAKEN}
        for name, stand_in in self._stand_ins.items():
            vars(stand_in).update({key: self._until_use(name, key) for key in _TAKEN[name]})
            package, _, own = name.rpartition(".")
            if package in self._stand_ins:
                setattr(self._stand_ins[package], own, stand_in)
        self._finder = _Finder(self)
        self._putting_in = threading.RLock()

    def leave_out(self) -> None:
        """Take the modules' places. It comes before `import torch`."""
        sys.modules.update(self._stand_ins)

    def watch(self) -> None:
        """Have any import of more of torch put the modules in their places first. It comes after `import torch`."""
        for name, stand_in in self._stand_ins.items():
            package, _, own = name.rpartition(".")
            vars(sys.modules[package]).setdefault(own, stand_in)
        sys.meta_path.insert(0, self._finder)
        _allow_generators()

    def put_in(self) -> None:
        """Import the modules, unless that has begun; another thread waits for their end."""
        with self._putting_in:
            if self._finder in sys.meta_path:
                sys.meta_path.remove(self._finder)
                self._put_in()

    def _until_use(self, module: str, name: str) -> object:
        """Return what stands for a name of a module that is left out."""
        if name == _SIGNATURES:
            return {}
        if name in _CLASSES:
            return type(name, (), {})

        def function(*args: Any, **kwargs: Any) -> Any:
            self.put_in()
            return getattr(importlib.import_module(module), name)(*args, **kwargs)

        return function

    def _put_in(self) -> None:
        for name in self._stand_ins:
            del sys.modules[name]
        with sys.modules["torch"]._C.DisableTorchFunction():  # a mode of the caller's would see their tensors
            for name in _IN_ORDER:
                importlib.import_module(name)
        self._hand_over()

    def _hand_over(self) -> None:
        """Replace what torch has taken from the stand-ins."""
        torch: Any = sys.modules["torch"]
        signatures = vars(self._stand_ins["torch.fx.operator_schemas"])[_SIGNATURES]
        setattr(sys.modules["torch.fx.operator_schemas"], _SIGNATURES, signatures)
        setattr(torch.compiler, _OPTIONS, getattr(sys.modules["torch._higher_order_ops.invoke_subgraph"], _OPTIONS))
        for name in ("torch._higher_order_ops", "torch.func"):
            for key in _TAKEN[name]:
                setattr(torch, key, getattr(sys.modules[name], key))
        if devices := sys.modules.get(_DEVICES):
            devices.__dict__["_device_constructors"].cache_clear()  # one of them is among those


class _StandIn(ModuleType):
    """Replace a module until an attribute is read."""

    def __init__(self, name: str, folders: list[str], graphs: Graphs) -> None:
        super().__init__(name)
        self.__path__ = [os.path.join(folder, *name.split(".")[1:]) for folder in folders]
        self._graphs = graphs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._graphs.put_in()
        return getattr(importlib.import_module(self.__name__), name)


class _Finder(MetaPathFinder):
    """Put these modules in their places before any further part of torch is imported."""

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if not fullname.startswith("torch.") or fullname.startswith(_ALONE):
            return None
        self._graphs.put_in()
        return spec_of_loaded(fullname)


def _allow_generators() -> None:
    """Finish the class of torch's generators, as a module would that is left out."""
    if finish := getattr(sys.modules["torch._C"], "_set_generator_metaclass", None):
        finish(importlib.import_module("torch._opaque_base").OpaqueBaseMeta)
