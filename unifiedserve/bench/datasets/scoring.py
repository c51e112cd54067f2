"""Find the choice that a model's answer names, and whether that is right."""

import re
from collections.abc import Iterable, Mapping, Sequence

from unifiedserve.bench.datasets.choices import YES_NO, labels
from unifiedserve.bench.requests import Expected

# A letter that stands alone, but no article, pronoun or name in a sentence: "A man …", "I think …", "C looks …".
_ALONE = r"(?<![\w'\u2019])([A-Z])(?![\w'\u2019])(?!\s+(?!(?:is|or|and|because|since|as)\b)[a-z])"
_LETTER = re.compile(rf"{_ALONE}|\(([a-z])\)")
_LEADING = re.compile(r"\W*([A-Za-z])(?:[.):]|(?=\s*\n)|\W*$)")
_CONCLUSION = re.compile(
    rf"\b(?:answer|(?:right|correct|best) (?:option|choice))\b(?:\s+is)?[\s:*(\"'“]*{_ALONE}", re.IGNORECASE
)


def is_right(answer: str, expected: Expected) -> bool | None:
    """Tell whether an answer names the right choice and no other; None if the right one is not public."""
    if expected.right is None:
        return None
    return chosen(answer, expected.choices) == expected.right


def chosen(answer: str, choices: Sequence[str]) -> int | None:
    """Return the index of the choice that an answer names, by letter or text.

    None if it names none or several. The letter goes first. A model's thoughts, `<think>…</think>`, do not count. A
    letter that the answer begins with outweighs a conclusion ("the answer is B"), that outweighs other letters, and
    these outweigh texts.
    """
    answer = answer.rpartition("</think>")[2].partition("<think>")[0].strip()
    if tuple(choices) == YES_NO:
        return _yes_or_no(answer)
    if whole := _reading(answer, choices):
        return _only(whole)
    leading = _LEADING.match(answer)
    if leading and (first := _indices(leading[1], choices)):
        return _only(first | _contradicting(answer[leading.end() :], choices))
    rest, texts = _without_texts(answer, choices)
    return _only(_indices(_CONCLUSION.findall(rest), choices) or _letters(rest, choices) or texts)


def accuracy_plus(right: Mapping[str, bool]) -> float:
    """Return the share of images whose questions are all answered right (MME, arXiv:2306.13394 §2.2), by sample ids.

    The part of an id before its last "/" is the image's. Raises ZeroDivisionError if there are no samples.
    """
    images: dict[str, bool] = {}
    for sample, is_so in right.items():
        image = sample.rpartition("/")[0]
        images[image] = images.get(image, True) and is_so
    return sum(images.values()) / len(images)


def _yes_or_no(answer: str) -> int | None:
    """Return the first word if it is one of the two. Else it is the only one in the text."""
    known = [label.casefold() for label in YES_NO]
    words = re.findall(r"\w+", answer.casefold())
    told = [word for word in words if word in known]
    return known.index(told[0]) if told and (told[0] == words[0] or len(set(told)) == 1) else None


def _reading(text: str, choices: Sequence[str]) -> set[int]:
    """Return the choices that read exactly so; those of one letter are labels."""
    return {index for index, choice in enumerate(choices) if len(_bare(choice)) > 1 and _bare(choice) == _bare(text)}


def _contradicting(rest: str, choices: Sequence[str]) -> set[int]:
    """Return choices that the line names behind its first letter.

    It names another's text and nothing else, or letters.
    """
    line = rest.partition("\n")[0]
    return _reading(line, choices) or _letters(_without_texts(line, choices)[0], choices)


def _without_texts(answer: str, choices: Sequence[str]) -> tuple[str, set[int]]:
    """Return the answer without the texts of choices, longest first, and whose texts they were."""
    found = set()
    for index in sorted(range(len(choices)), key=lambda index: -len(choices[index])):
        text = _bare(choices[index])
        if len(text) > 1 or text.isdigit():
            pattern = rf"(?<!\w)(?<!\d[.,]){re.escape(text)}(?!\w)(?![.,]\d)"
            answer, times = re.subn(pattern, " … ", answer, flags=re.IGNORECASE)
            found |= {index} if times else set()
    return answer, found


def _letters(text: str, choices: Sequence[str]) -> set[int]:
    return _indices((capital or small for capital, small in _LETTER.findall(text)), choices)


def _indices(letters: Iterable[str], choices: Sequence[str]) -> set[int]:
    known = labels(choices)
    return {known.index(letter) for letter in map(str.upper, letters) if letter in known}


def _only(indices: set[int]) -> int | None:
    return next(iter(indices)) if len(indices) == 1 else None


def _bare(text: str) -> str:
    return text.strip().strip(".,;:!?\"'").strip().casefold()
