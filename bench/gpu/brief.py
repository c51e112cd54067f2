"""Shorten an item's figures to one line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LONG = 200  # characters: a longer text is no figure


def brief(figures: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return single figures by their names, and these columns of each row behind the row's name."""
    return ", ".join(_said(figures, columns))


def number(value: Any) -> Any:
    """Return a number in four digits, and another value unchanged."""
    return f"{value:.4g}" if isinstance(value, float) else value


def is_single(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) < LONG)


def _said(figures: Mapping[str, Any], columns: Sequence[str]) -> Iterator[str]:
    for name, value in figures.items():
        if is_single(value):
            yield f"{name} {number(value)}"
        elif isinstance(value, Mapping):
            yield from (f"{name} {inner}" for inner in _said(value, columns))
        elif isinstance(value, list):
            yield from filter(None, (_row(row, columns) for row in value if isinstance(row, Mapping)))
            yield from (f"{name} {row}" for row in value if isinstance(row, str))


def _row(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return a row's name and its columns; nothing if it has none of them."""
    found = [str(number(row[column])) for column in ("error", *columns) if row.get(column) is not None]
    called = [value for name, value in row.items() if isinstance(value, str) and name not in ("error", *columns)]
    return f"{' '.join(called) or next(iter(row.values()))} {'/'.join(found)}" if found else ""
