"""Find the texts that people read: docstrings, comments, help, and pages in Markdown."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[2]
_COMMENT = re.compile(r"(?:^|\s)# (.*)$")
_FENCE = re.compile(r"^ *```")
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Text(NamedTuple):
    """Place a text in its file."""

    path: Path
    line: int
    text: str


class Source:
    """Read the texts of a file of Python."""

    def __init__(self, path: Path) -> None:
        """Parse the file."""
        self.path = path
        self._code = path.read_text()
        self._nodes = list(ast.walk(ast.parse(self._code)))

    def docstrings(self) -> Iterator[Text]:
        """Yield the docstrings."""
        for node in self._nodes:
            if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
                yield Text(self.path, node.body[0].lineno, text)

    def help(self) -> Iterator[Text]:
        """Yield the texts of options and of fields: of `help=` and of `description=`."""
        for node in self._nodes:
            named = isinstance(node, ast.keyword) and node.arg in ("help", "description")
            if named and (text := "".join(_constants(node.value))):
                yield Text(self.path, node.value.lineno, text)

    def comments(self) -> Iterator[Text]:
        """Yield the comments, lines that follow each other as one."""
        start, found = 0, list[str]()
        for number, line in enumerate(self._code.splitlines(), 1):
            comment = _COMMENT.search(line)
            if found and not (comment and line.lstrip().startswith("#")):
                yield Text(self.path, start, " ".join(found))
                found = []
            if comment:
                start = start if found else number
                found.append(comment[1])
        if found:
            yield Text(self.path, start, " ".join(found))


class Page:
    """Read the texts of a page in Markdown, without its code."""

    def __init__(self, path: Path) -> None:
        """Number the lines that are no code."""
        self.path = path
        self._lines = list[tuple[int, str]]()
        code = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            fence = bool(_FENCE.match(line))
            code ^= fence
            self._lines.append((number, "" if code or fence else line.strip()))

    def paragraphs(self) -> Iterator[Text]:
        """Yield the paragraphs and the items of lists."""
        start, found = 0, list[str]()
        for number, line in [*self._lines, (0, "")]:
            if found and (not line or line.startswith(("|", "#", "* ", "- "))):
                yield Text(self.path, start, " ".join(found))
                found = []
            if line and not line.startswith(("|", "#")):
                start = start if found else number
                found.append(re.sub(r"^[*-] ", "", line))

    def cells(self) -> Iterator[Text]:
        """Yield the cells of tables."""
        for number, line in self._lines:
            if line.startswith("|"):
                yield from (Text(self.path, number, cell.strip()) for cell in line.strip("|").split("|"))


def _constants(node: ast.expr) -> Iterator[str]:
    """Yield the literal pieces of a text."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


SOURCES = [
    Source(path)
    for package in ("unifiedserve", "flashcodec/python/flashcodec", "ipc_buffers/python/ipc_buffers")
    for path in sorted((REPOSITORY / package).rglob("*.py"))
]
PAGES = [
    Page(path)
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "unifiedserve/**/*.md", "*/fuzz/*.md", "bench/*/README.md")
    for path in sorted(REPOSITORY.glob(pattern))
]
