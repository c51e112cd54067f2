"""Keep on disk what Python compiles of texts while a program starts.

At each start Python compiles the methods of dataclasses and of named tuples and the patterns of `re` again: a tenth of
the time that a server's imports take. It keeps modules itself.
"""

import collections
import dataclasses
import re
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from unifiedserve.kept_value import read_kept, write_kept
from unifiedserve.user_cache import cache_folder

_WORTH_IT = 32  # new texts: a few differ at each start, such as patterns made of a set
_compiler: Any = getattr(re, "_compiler", None)  # where `re` turns patterns into its codes


def begin_keeping(program: str) -> None:
    """Compile texts from now on as an earlier start of the program has kept them."""
    _keeper.begin(cache_folder() / f"compiled-texts-{program}")


def end_keeping() -> None:
    """Let Python compile as before, and keep what was used if much is new."""
    _keeper.end()


class _Keeper:
    """Replace what compiles, from the start of a program until it is ready."""

    def __init__(self) -> None:
        self._texts: _Texts | None = None
        self._undo: list[tuple[ModuleType, str, Any]] = []

    def begin(self, path: Path) -> None:
        if self._texts:
            return
        self._texts = texts = _Texts(path)
        self._replace(dataclasses, "exec", texts.execute)
        self._replace(collections, "eval", texts.evaluate)
        if _compiler and {"compile", "_sre"} <= vars(_compiler).keys():
            patterns = _Patterns(texts, _compiler.compile, _compiler._sre)
            self._replace(_compiler, "compile", patterns.compile)
            self._replace(_compiler, "_sre", patterns.recorder)

    def _replace(self, module: ModuleType, name: str, value: Any) -> None:
        self._undo.append((module, name, vars(module).get(name)))
        setattr(module, name, value)

    def end(self) -> None:
        while self._undo:
            module, name, before = self._undo.pop()
            if before is None:  # a builtin, which has been there under the same name
                delattr(module, name)
            else:
                setattr(module, name, before)
        if texts := self._texts:
            self._texts = None
            texts.keep()


_keeper = _Keeper()


class _Texts:
    """Hold what texts compile to: as an earlier start has kept it, and what of it this start uses."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[Hashable, Any] = {}
        with suppress(OSError, ValueError):
            self._kept = read_kept(path, None)
        self._used: dict[Hashable, Any] = {}
        self._new = 0

    def find(self, key: Hashable) -> Any:
        """Return what is known of a text, or None."""
        value = self._used.get(key) or self._kept.get(key)
        if value is not None:
            self._used[key] = value
        return value

    def add(self, key: Hashable, value: Any) -> Any:
        """Remember what a text compiles to, and return it."""
        self._used[key] = value
        self._new += 1
        return value

    def execute(self, text: str, *scopes: dict[str, Any]) -> None:
        """Do as `exec` does."""
        exec(self._code(text, "exec"), *scopes)

    def evaluate(self, text: str, *scopes: dict[str, Any]) -> Any:
        """Do as `eval` does."""
        return eval(self._code(text, "eval"), *scopes)

    def _code(self, text: str, mode: str) -> Any:
        key = (mode, text)
        return self.find(key) or self.add(key, compile(text, "<string>", mode, dont_inherit=True))

    def keep(self) -> None:
        """Write what was used, if much of it is new."""
        if self._new > _WORTH_IT:
            write_kept(self._path, None, self._used)


class _Patterns:
    """Compile patterns as `re` does, and make those that are known of their codes."""

    def __init__(self, texts: _Texts, compile_anew: Callable[..., Any], machine: Any) -> None:
        self._texts = texts
        self._compile_anew = compile_anew
        self._machine = machine
        self._last = threading.local()
        #: replaces the module that makes a pattern of codes, and remembers what the last one was made of
        self.recorder = SimpleNamespace(**vars(machine) | {"compile": self._record})

    def compile(self, pattern: Any, flags: int = 0) -> Any:
        """Return the compiled pattern. Raises re.error as ever."""
        if type(pattern) not in (str, bytes) or flags & re.DEBUG:
            return self._compile_anew(pattern, flags)
        key = ("pattern", pattern, int(flags))
        if codes := self._texts.find(key):
            return self._machine.compile(pattern, *codes)
        compiled = self._compile_anew(pattern, flags)
        self._texts.add(key, self._last.codes)
        return compiled

    def _record(self, pattern: Any, flags: int, code: list[int], groups: int, names: Any, indices: Any) -> Any:
        plain = [int(each) for each in code]  # some are named
        self._last.codes = (int(flags), plain, groups, dict(names), tuple(indices))
        return self._machine.compile(pattern, flags, code, groups, names, indices)
