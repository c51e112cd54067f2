"""Hold every text that people read to plain English (tests/prose/prose_rules.py says how)."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import prose_rules as rules
import pytest
from prose_texts import PAGES, REPOSITORY, SOURCES, Page, Source, Text

Rule = Callable[[str], Iterator[str]]


def report(texts: Iterable[Text], *broken: Rule) -> str:
    """Return a line for each fault: file, line, and what to write instead."""
    return "\n".join(
        f"{text.path.relative_to(REPOSITORY)}:{text.line}: {fault}"
        for text in texts
        for rule in broken
        for fault in rule(text.text)
    )


def test_docstrings() -> None:
    docstrings = (text for source in SOURCES for text in source.docstrings())
    assert not (faults := report(docstrings, rules.faults_of_docstring, rules.faults_of_text)), faults


def test_comments() -> None:
    comments = (text for source in SOURCES for text in source.comments())
    assert not (faults := report(comments, rules.faults_of_text)), faults


def test_help_and_descriptions_of_fields() -> None:
    texts = (text for source in SOURCES for text in source.help())
    assert not (faults := report(texts, rules.faults_of_text)), faults


def test_pages() -> None:
    paragraphs = (text for page in PAGES for text in page.paragraphs())
    assert not (faults := report(paragraphs, rules.faults_of_text)), faults


def test_tables() -> None:
    cells = (text for page in PAGES for text in page.cells())
    assert not (faults := report(cells, rules.faults_of_cell, rules.faults_of_text)), faults


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("What travels between processes.", "What"),
        ("The table of requests.", "The"),
        ("Returns a request.", "Returns"),
        (f"Return {'a ' * rules.MOST_FIRST}request.", "at most"),
        (f"Return a request\n{'that is long ' * 5}.\n\nMore.", "at most"),
    ],
)
def test_a_docstring_at_fault_is_found(text: str, word: str) -> None:
    assert any(word in fault for fault in rules.faults_of_docstring(text))


@pytest.mark.parametrize(
    "text",
    [
        "Return a request.",
        f"Return a request. {'It is long. ' * 20}",
        f"Return a request ({'in seconds ' * 10}) of a client.",
        f"Return a request: {'one of these, ' * 10}.",
        "Return `the tokens of a request as they come from the engine, one after the other, to a client` whole.",
    ],
)
def test_a_good_docstring_passes(text: str) -> None:
    assert not list(rules.faults_of_docstring(text))


@pytest.mark.parametrize(
    "text",
    [
        "Nothing is kept, for the pages are free.",
        "It may be read again, for nobody has taken it.",
        "What is not read stays where it is.",
        "It keeps pages; what has been read is dropped.",
        "A page is free. Who waits for one is told.",
        "Send it to who has asked and has waited.",
        "Return who decodes it.",
        "It is closed by whoever made it.",
        "It begins anew.",
        "A matcher is but a cache.",
        "The kernel sees to it.",
    ],
)
def test_a_text_at_fault_is_found(text: str) -> None:
    assert list(rules.faults_of_text(text))


@pytest.mark.parametrize(
    "text",
    [
        "Raise ConfigError, with the numbers, for a placement that does not fit.",
        "The time between tokens, for which that is so, is measured.",
        "A client who waits is told who goes first.",
        "Is it there? What is missing?",
        "Use `for it is` and `anew` in code.",
    ],
)
def test_a_good_text_passes(text: str) -> None:
    assert not list(rules.faults_of_text(text))


def test_a_long_cell_is_found() -> None:
    assert list(rules.faults_of_cell("word " * (rules.MOST_IN_CELL + 1)))
    assert not list(rules.faults_of_cell("word " * rules.MOST_IN_CELL))


def test_texts_are_found_where_they_are(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text(
        '"""Say one."""\n\nx = 1  # two\n# three\n# and three\noption(help="four")\n\n\ndef f():\n    """Say five."""\n'
    )
    source = Source(code)
    assert [text[1:] for text in source.docstrings()] == [(1, "Say one."), (10, "Say five.")]
    assert [text[1:] for text in source.comments()] == [(3, "two three and three")]
    assert [text[1:] for text in source.help()] == [(6, "four")]

    markdown = tmp_path / "page.md"
    markdown.write_text("# Title\n\nOne,\ntwo.\n\n```\ncode\n```\n\n* three\n* four\n\n| a | b |\n")
    page = Page(markdown)
    assert [text[1:] for text in page.paragraphs()] == [(3, "One, two."), (10, "three"), (11, "four")]
    assert [text[1:] for text in page.cells()] == [(13, "a"), (13, "b")]
