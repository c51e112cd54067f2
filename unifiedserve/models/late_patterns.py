"""Have `transformers` compile its patterns of tensors' names when they are used.

For the few rules of one model it makes those of all its models, a thousand patterns: a tenth of a second.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any


@contextmanager
def compiling_late(module: ModuleType) -> Iterator[None]:
    """Let what a module compiles meanwhile be compiled at its first use."""
    before = module.__dict__.get("re")
    if before is None:  # another version, which compiles nothing
        yield
        return
    module.__dict__["re"] = SimpleNamespace(**vars(re) | {"compile": _LatePattern})
    try:
        yield
    finally:
        module.__dict__["re"] = before


class _LatePattern:
    """Replace a compiled pattern, and compile it for the first attribute that is read."""

    def __init__(self, source: str, flags: int = 0) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy is as late
            raise AttributeError(name)
        value = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, value)
        return value
