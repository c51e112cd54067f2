"""Write pieces of a page: every text is escaped here and nowhere else."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple


class Cell(NamedTuple):
    """Hold a cell of a table. `missed` marks what misses its target."""

    text: str
    missed: bool = False


def element(name: str, text: str, kind: str = "") -> str:
    """Return an element that holds a text."""
    return f"<{name}{_class(kind)}>{escape(text)}</{name}>"


def section(anchor: str, title: str, note: str, *content: str) -> str:
    """Return a part of the page under its own heading."""
    parts = [f'<section id="{anchor}">', element("h2", title), element("p", note, "note"), *content, "</section>"]
    return "\n".join(parts)


def table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[Cell]]], kind: str = "") -> str:
    """Return a table; each row begins with its name."""
    columns = "".join(element("th", text) for text in ("", *head))
    body = "\n".join(
        f"<tr>{element('th', name)}{''.join(element('td', text, 'missed' * missed) for text, missed in cells)}</tr>"
        for name, cells in rows
    )
    parts = [
        f'<div class="wide"><table{_class(kind)}>',
        f"<thead><tr>{columns}</tr></thead>",
        f"<tbody>\n{body}\n</tbody></table></div>",
    ]
    return "\n".join(parts)


def folded(title: str, content: str) -> str:
    """Return something that is shown when its title is clicked."""
    return f"<details>{element('summary', title)}\n{content}\n</details>"


def document(title: str, style: str, content: Iterable[str]) -> str:
    """Return a whole page that needs nothing from elsewhere."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            f'<head><meta charset="utf-8"><title>{escape(title)}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>\n{style}</style></head>",
            "<body>",
            element("h1", title),
            *content,
            "</body></html>\n",
        ]
    )


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
