"""Hold paths that pages name to the repository: of files, of the architecture's map, and of results."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prose_texts import PAGES, REPOSITORY, Page

RESULTS = REPOSITORY / "bench" / "results"
PACKAGE = REPOSITORY / "unifiedserve"
PARTS = [f"{folder.name}/" for top in (REPOSITORY, PACKAGE) for folder in top.iterdir() if folder.is_dir()]
MADE = ("build/",)  # by the commands of a page
CODE = re.compile(r"`([^`\s]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def texts(page: Page) -> Iterator[str]:
    yield from (text.text for text in page.paragraphs())
    yield from (text.text for text in page.cells())


def named_paths(page: Page) -> Iterator[str]:
    """Yield the paths that a page names in code: those that begin with a folder of the repository or the package."""
    for text in texts(page):
        for code in CODE.findall(text):
            path = code.partition("::")[0]
            if path.startswith(tuple(PARTS)) and not path.startswith(MADE):
                yield path


def exists(path: str, *folders: Path) -> bool:
    """Tell whether one of the folders has the path; `*` may stand for letters, and a file go without its suffix."""
    patterns = (path.rstrip("/"), f"{path}.*")
    return any(any(folder.glob(pattern)) for folder in folders for pattern in patterns)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.relative_to(REPOSITORY).as_posix())
def test_paths_that_a_page_names_exist(page: Page) -> None:
    folder = page.path.parent
    links = {link for text in texts(page) for link in LINK.findall(text) if not re.match(r"\w+:", link)}
    missing = {link for link in links if not (folder / link).exists()}
    missing |= {path for path in named_paths(page) if not exists(path, REPOSITORY, PACKAGE, folder)}
    assert not missing


def rows_of_the_map() -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield of each row the folder that its paths begin in, these paths, and the ones in its description."""
    _, _, section = (REPOSITORY / "docs/architecture.md").read_text().partition("\n## Map of the code\n")
    inside, _, beside = section.partition("\nBeside it:\n")
    for base, table in ((PACKAGE, inside), (REPOSITORY, beside)):
        for row in re.findall(r"^\| (`.*) \| (.*) \|$", table, re.MULTILINE):
            own, told = (CODE.findall(cell) for cell in row)
            yield base, own, [path for path in told if re.search(r"\w(/|\.py|\.h|\.cpp)$", path)]


def test_the_map_shows_what_there_is() -> None:
    """Later paths of a row may lie beside the first one."""
    missing = []
    for base, own, told in rows_of_the_map():
        beside = (base / own[0]).parent
        missing += [path for path in own if not exists(path, base, beside)]
        folders = [folder for path in own for folder in (base / path, beside / path)]
        missing += [path for path in told if not exists(path, *folders, base, PACKAGE)]
    assert not missing


def test_the_map_has_all_parts_of_the_package() -> None:
    own = {path.partition("/")[0] for base, paths, _ in rows_of_the_map() if base == PACKAGE for path in paths}
    parts = {path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts - own <= {"__init__.py", "__main__.py", "bundled_model"}


def written_results() -> dict[str, str]:
    """Return the command of each result, by the pattern of its files."""
    rows = re.findall(r"^\| (`.*) \| (.*) \|$", (RESULTS / "README.md").read_text(), re.MULTILINE)
    return {pattern: command for patterns, command in rows for pattern in CODE.findall(patterns)}


def test_each_result_names_its_command() -> None:
    found = {path for pattern in written_results() for path in RESULTS.glob(pattern)}
    files = {path for path in RESULTS.rglob("*") if path.is_file()} - {RESULTS / "README.md"}
    assert not {path for path in files if not found & {path, path.parent}}


def test_each_command_of_results_has_its_script() -> None:
    assert not [pattern for pattern in written_results() if not any(RESULTS.glob(pattern))]
    scripts = {script for command in written_results().values() for script in re.findall(r"`python (\S+\.py)", command)}
    assert len(scripts) > 30
    assert not [script for script in scripts if not (REPOSITORY / script).exists()]
