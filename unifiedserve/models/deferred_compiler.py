"""Import torch's compiler at its first use, instead of with `transformers`.

`transformers` imports one small module of `torch._dynamo`, and marks some functions for it. That would bring in all of
the compiler with sympy, a third of the memory and half of the time that all imports take. Nothing is compiled here.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = "torch._dynamo"
_ALONE = f"{_PACKAGE}._trace_wrapped_higher_order_op"  # it needs nothing of the package


def defer_compiler() -> None:
    """Leave the compiler out until its first use, unless it has been imported."""
    if _PACKAGE in sys.modules:
        return
    torch = importlib.import_module("torch")
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.loader is None:
        return
    sys.modules[_PACKAGE] = package = _Deferred(spec)
    torch.__dict__["_dynamo"] = package
    sys.meta_path.insert(0, _Finder(package))


class _Deferred(ModuleType):
    """Replace the package until it is used: take marks, and import it for any other attribute."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(_PACKAGE)
        self.__spec__ = spec
        self.__path__ = spec.submodule_search_locations or []
        self.__file__ = spec.origin
        self._marked: list[tuple[str, Any]] = []

    def allow_in_graph(self, function: Any) -> Any:
        return self._mark("allow_in_graph", function)

    def assume_constant_result(self, function: Any) -> Any:
        return self._mark("assume_constant_result", function)

    def disable(self, function: Any = None, recursive: bool = True, **_: Any) -> Any:
        """Return the function as it is: it would be wrapped for what is compiled only."""
        return function if function is not None else _same

    def _mark(self, mark: str, function: Any) -> Any:
        self._marked.append((mark, function))
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.import_now()
        return getattr(self, name)

    def import_now(self) -> None:
        """Become the package itself, and give it the marks that it has missed."""
        if type(self) is not _Deferred:
            return
        marked, spec = self._marked, self.__spec__
        importlib.import_module("torch._meta_registrations")  # first, as torch imports them
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(self)
        for mark, function in marked:
            getattr(self, mark)(function)


class _Finder(MetaPathFinder):
    """Find no module, but import the package before any further part of it."""

    def __init__(self, package: ModuleType) -> None:
        self._package = package

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if isinstance(self._package, _Deferred) and fullname.startswith(f"{_PACKAGE}.") and fullname != _ALONE:
            self._package.import_now()


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
