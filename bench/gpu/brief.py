"""Shorten an item's figures to one line."""

from collections.abc import Iterator, Mapping
from typing import Any

LONG = 200  # characters: a longer text is no figure
#: columns of rows, whichever item's
TELLING: tuple[str, ...] = (
    "error",
    "why",
    "left_out",
    "of_floor",
    "tokens_s",
    "tbt_p99_ms",
    "video_ttft_s",
    "requests_s",
    "same",
)
TELLING += ("healthy_after_s", "slowdown", "decode_ms", "prefill_ms", "context_ms", "mib", "open_ms")


def brief(figures: Mapping[str, Any]) -> str:
    """Return single figures by their names, and the telling columns of each row behind the row's name."""
    return ", ".join(_said(figures))


def number(value: Any) -> Any:
    """Return a number in four digits, and another value unchanged."""
    return f"{value:.4g}" if isinstance(value, float) else value


def is_single(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) < LONG)


def _said(figures: Mapping[str, Any]) -> Iterator[str]:
    for name, value in figures.items():
        if is_single(value):
            yield f"{name} {number(value)}"
        elif isinstance(value, Mapping):
            yield from (f"{name} {inner}" for inner in _said(value))
        elif isinstance(value, list):
            yield from filter(None, (_row(row) for row in value if isinstance(row, Mapping)))
            yield from (f"{name} {row}" for row in value if isinstance(row, str))


def _row(row: Mapping[str, Any]) -> str:
    """Return a row's name and its telling columns; nothing if it has none."""
    found = [str(number(row[column])) for column in TELLING if row.get(column) is not None]
    called = [value for name, value in row.items() if isinstance(value, str) and name not in TELLING]
    return f"{' '.join(called) or next(iter(row.values()))} {'/'.join(found)}" if found else ""
