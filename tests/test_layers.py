"""The rule of docs/architecture.md: a file of unifiedserve imports only from its own row of the map or from above."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "unifiedserve"

ROWS = [
    {"__init__", "config", "errors", "sample_clips"},
    {"attention"},
    {"memory"},
    {"models"},
    {"sampling", "grammar"},
    {"messages"},
    {"scheduling"},
    {"stages"},
    {"worker"},
    {"resources"},
    {"supervisor", "link"},
    {"media_digest", "caches"},
    {"grammar_check"},
    {"admission", "active", "output", "tracing", "metrics"},
    {"live", "contact_sheet", "broadcast"},
    {"intake", "in_flight"},
    {"engine"},
    {"server"},
    {"doctor", "gantt", "live_view", "own_daemon", "ask", "demo", "cli_options", "cli"},
]
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(file: Path) -> str:
    """The row's entry that a file belongs to: its folder below the package, or its own name."""
    first = file.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def row_of(part: str) -> int:
    return next((number for number, row in enumerate(ROWS) if part in row), -1)


def imported_modules(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_come_from_rows_above(file: Path) -> None:
    row = row_of(part_of(file))
    assert row >= 0, f"{part_of(file)} has no row in the map"
    for module in imported_modules(file):
        package, _, rest = module.partition(".")
        if package == "unifiedserve":
            part = rest.split(".")[0]
            imported = row_of(part) if (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").exists() else 0
            assert imported <= row, f"imports {module} from a row below"


@pytest.mark.parametrize("file", sorted((PACKAGE / "scheduling").glob("*.py")), ids=lambda file: file.name)
def test_schedulers_know_neither_torch_nor_a_clock(file: Path) -> None:
    imported = {module.split(".")[0] for module in imported_modules(file)}
    assert not imported & {"torch", "numpy", "time", "datetime", "ipc_buffers", "flashcodec", "os", "random"}
