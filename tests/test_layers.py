"""The rule of docs/architecture.md: a file of unifiedserve imports only from its own row of the map or from above.

The rows are read from that page: of the first table under "Map of the code", the paths in the first column.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "unifiedserve"
PAGE = REPOSITORY / "docs" / "architecture.md"


def rows_of_the_map(page: str) -> list[tuple[str, ...]]:
    """Return the paths in each row of the page's map, from the first row on."""
    lines = iter(page.partition("\n## Map of the code\n")[2].splitlines())
    table = (line for line in lines if line.startswith("|"))
    first = next(table, "")
    rows = [line for line in [first, *takewhile(lambda line: line.startswith("|"), lines)] if line]
    return [tuple(re.findall(r"`([^`]+)`", line.split("|")[1])) for line in rows[2:]]  # after the head and its rule


ROWS = rows_of_the_map(PAGE.read_text())
FILES = sorted(file for file in PACKAGE.rglob("*.py") if file != PACKAGE / "__init__.py")


def row_of(path: Path) -> int | None:
    """Return the number of the row that names a file of the package, or the closest folder that it is in."""
    relative = path.relative_to(PACKAGE)
    for named in [str(relative), *(f"{parent}/" for parent in relative.parents)]:
        for number, row in enumerate(ROWS):
            if named in row:
                return number
    return None


def path_of(module: str) -> Path | None:
    """Return the file or folder of a dotted name below the package; None for what a module holds."""
    parts = module.split(".")[1:]
    for length in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:length])
        if path.is_dir():
            return path / "__init__.py"
        if path.with_suffix(".py").exists():
            return path.with_suffix(".py")
    return None


def imported_modules(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_map_names_what_there_is() -> None:
    assert ROWS, f"{PAGE} has no table under '## Map of the code'"
    gone = [path for row in ROWS for path in row if not (PACKAGE / path).exists()]
    assert not gone, f"the map of {PAGE.name} names what unifiedserve/ does not have: {', '.join(gone)}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_come_from_rows_above(file: Path) -> None:
    row = row_of(file)
    assert row is not None, f"no row of the map in {PAGE.name} names {file.relative_to(PACKAGE)} or a folder around it"
    for module in imported_modules(file):
        imported = path_of(module) if module.split(".")[0] == "unifiedserve" else None
        if imported is not None:
            assert (row_of(imported) or 0) <= row, f"imports {module} from a row below"


DEVICES = PACKAGE / "device"
KINDS = sorted(folder for folder in DEVICES.iterdir() if (folder / "__init__.py").exists())


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_devices_are_reached_through_their_seam(file: Path) -> None:
    """Who uses devices knows what their package exports, and no file of it.

    Of the kinds only CUDA knows another, Triton's kernels.
    """
    own = next((kind for kind in KINDS if kind in file.parents), None)
    if own is None and DEVICES in file.parents:
        return  # the seam itself
    for module in imported_modules(file):
        imported = path_of(module) if module.split(".")[0] == "unifiedserve" else None
        if own is None and imported and DEVICES in imported.parents:
            assert imported == DEVICES / "__init__.py", f"imports {module} across the seam"
        other = next((kind for kind in KINDS if imported and kind in imported.parents), None)
        if other not in (None, own) and (own and own.name, other.name) != ("cuda", "triton"):
            assert imported == other / "__init__.py", f"imports {module} across the seam"


@pytest.mark.parametrize("file", sorted((PACKAGE / "scheduling").rglob("*.py")), ids=lambda file: file.name)
def test_schedulers_know_neither_torch_nor_a_clock(file: Path) -> None:
    imported = {module.split(".")[0] for module in imported_modules(file)}
    assert not imported & {"torch", "numpy", "time", "datetime", "ipc_buffers", "flashcodec", "os", "random"}


def test_what_travels_knows_no_torch() -> None:
    code = "import sys, unifiedserve.messages.api, unifiedserve.messages.wire; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
