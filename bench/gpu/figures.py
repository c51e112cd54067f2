"""What an item tells the runner: figures, as it finds them, and how it ended."""

import json
from pathlib import Path
from typing import Any


class Skip(Exception):  # noqa: N818
    """An item that finds that it has nothing to do here: one line that says why."""


class Figures:
    """What an item has found so far, JSON values by name; each is on disk at once, for whatever happens next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, Any] = {}

    def add(self, **found: Any) -> None:
        self._found |= found
        self._write({"figures": self._found})

    def end(self, **how: str) -> None:
        """Say how the item ended: `skipped` or `error`, in one line."""
        self._write({"figures": self._found, **how})

    def _write(self, told: dict[str, Any]) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(told))
        partial.replace(self._path)


def read(path: Path) -> dict[str, Any]:
    """Return what an item has told: "figures", and perhaps "skipped" or "error"."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {"figures": {}}
