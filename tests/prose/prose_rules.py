"""Hold the rules of plain English that a program can check."""

import re
from collections.abc import Iterator
from pathlib import Path

VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text().split())
MOST_FIRST = 15  # words of a docstring's first sentence
MOST_IN_CELL = 40  # words of a table's cell

_END = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!vs)[.;:!?](?=\s|$)")
_QUOTED = re.compile(r"``.*?``|`[^`]*`|\"[^\"]*\"|\[([^\]]*)\]\([^)]*\)")
_ASIDE = re.compile(r"\([^()]*\)|(?<=\s)\[[^\[\]()]*[\])]")
_VERB = r"(?:is|are|was|were|has|have|had|can|cannot|could|may|might|must|will|would|should|does|do|did|needs?)"
_BECAUSE = re.compile(rf"[,;(:] ?for (?:(?!that|which|whom?|whose|example|instance)\w+ ){{1,4}}?{_VERB}\b")
_CLAUSE = re.compile(
    r"(?:^|(?<=[.;!] ))(?:What(?:ever)?|Who(?:ever|m)?|Whether|How)\b[^.?!:]*[.;!](?:\s|$)"
    rf"|; what (?:\w+ ){{1,8}}?{_VERB}\b"
    rf"|\b(?:for|to|of|by|with|that|if|because|and|than) who(?:ever)? [^,.;]*\b{_VERB}\b"
)
_UNCLEAR = {
    re.compile(r"\b[Ww]hoever\b|\bwhom\b|\b(?:Return|to|with|as|than|where) who\b"): "name who it is, instead of `who`",
    re.compile(r"\banew\b"): "say `again` or `new`, not `anew`",
    re.compile(r"\bsees? to\b"): "name what is done, not `see to`",
    re.compile(r"\b(?:is|are) but\b"): "say `only`, not `is but`",
}


def words(text: str) -> int:
    """Count the words of a text, a piece of code as one."""
    return len(_QUOTED.sub(lambda found: found[1] or "code", text).split())


def without_asides(text: str) -> str:
    """Drop what is in brackets, such as units, sources and shapes."""
    return _ASIDE.sub("", text)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text; a colon or a semicolon ends it as well."""
    text = " ".join(text.split("\n\n")[0].split())
    end = _END.search(_QUOTED.sub(lambda found: "x" * len(found[0]), text))
    return text[: end.start()] if end else text


def faults_of_docstring(text: str) -> Iterator[str]:
    """Yield what to write instead, for each fault in the form of a docstring."""
    sentence = first_sentence(text)
    verb = sentence.split()[0].strip(",")
    if verb not in VERBS:
        yield f"begin with a verb in the imperative, not `{verb}` (a new verb goes into tests/prose/verbs.txt)"
    if (count := words(without_asides(sentence))) > MOST_FIRST:
        yield f"begin with a sentence of at most {MOST_FIRST} words, not {count}"


def faults_of_text(text: str) -> Iterator[str]:
    """Yield what to write instead, for each fault in running text."""
    plain = " ".join(_QUOTED.sub("code", text).split())
    if found := _BECAUSE.search(plain):
        yield f"say `because`, not `{found[0]}`"
    if found := _CLAUSE.search(plain):
        yield f"name the subject, instead of a clause: `{found[0].strip()}`"
    for unclear, instead in _UNCLEAR.items():
        if unclear.search(plain):
            yield instead


def faults_of_cell(text: str) -> Iterator[str]:
    """Yield what to write instead of a table's cell that is too long."""
    if words(text) > MOST_IN_CELL:
        yield f"move the details to a paragraph: a cell has at most {MOST_IN_CELL} words, not {words(text)}"
