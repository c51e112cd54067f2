"""Answers of models are scored by the choice that they name, by letter or by text, and by no other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.bench.datasets.choices import LETTERS, YES_NO
from unifiedserve.bench.datasets.scoring import accuracy_plus, chosen, is_right
from unifiedserve.bench.requests import Expected

CHOICES = ("Red", "A blue car", "2", "Vitamin C")


SECOND = {
    "letter": ["B", "b", "(B)", "B.", "b) a car", "**B**", "B: it moves", "B, because it is blue", "B\n\nA is wrong."],
    "sentence": ["Answer: B", "The answer is B", "the answer is (b).", "Option B", "I think it is B"],
    "conclusion": [
        "The answer is B, not A.",
        "Option A is wrong, so the answer is B",
        "The correct option is B, not C",
        "<think>A or C?</think>\nB",
    ],
    "text": ["B. A blue car", "a blue car", "It is a blue car."],
}
NONE = {
    "nothing": ["", "…", "<think>B</think>", "<think>It is B", "I would say so"],
    "unknown": ["E", "there are 2.5"],
    "several": ["B or C", "A and B", "A, B", "A. B.", "(A) (B)", "Red and a blue car"],
    "contradiction": ["B. Red"],
    "article": ["A man walks", "The answer is a dog", "C looks around"],
}


@pytest.mark.parametrize("form", SECOND)
def test_an_answer_names_the_second_choice(form: str) -> None:
    assert {answer: chosen(answer, CHOICES) for answer in SECOND[form]} == dict.fromkeys(SECOND[form], 1)


@pytest.mark.parametrize("form", NONE)
def test_an_answer_that_names_no_choice_or_several_is_wrong(form: str) -> None:
    assert {answer: chosen(answer, CHOICES) for answer in NONE[form]} == dict.fromkeys(NONE[form])
    assert not any(is_right(answer, Expected(choices=CHOICES, right=1)) for answer in NONE[form])


def test_letters_in_the_text_of_a_choice_are_none() -> None:
    assert chosen("D. Vitamin C", CHOICES) == 3
    assert chosen("Vitamin C", CHOICES) == 3
    assert chosen("There are 2 of them.", CHOICES) == 2
    assert chosen("red hot", ("red", "red hot")) == 1
    assert chosen("A", ("B", "A")) == 0
    assert chosen("1->2->3", ("1->2", "1->2->3")) == 1
    assert chosen("C scrolls on", ("C scrolls on", "C looks up", "C sleeps")) == 0


@pytest.mark.parametrize(
    ("answer", "index"),
    [
        ("Yes", 0),
        ("no.", 1),
        ("Yes, there is no dog", 0),
        ("There is no dog", 1),
        ("perhaps", None),
        ("It is yes or no", None),
    ],
)
def test_yes_and_no(answer: str, index: int | None) -> None:
    assert chosen(answer, YES_NO) == index


def test_what_has_no_public_answer_is_not_scored() -> None:
    assert is_right("B", Expected(choices=CHOICES)) is None


words = st.text("bcdefghjkmnopqrstuvwxyz", min_size=2, max_size=8)
choice_lists = st.lists(words, min_size=2, max_size=8, unique=True)
forms = st.sampled_from(
    ["{}", "({})", "{}.", "{})", " {}\n", "**{}**", "Answer: {}", "The answer is {}.", "{}: {text}", "{}. {text}"]
)


@given(choice_lists, forms, st.data())
def test_every_letter_in_every_form_names_its_choice(choices: list[str], form: str, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(choices) - 1))
    assert chosen(form.format(LETTERS[index], text=choices[index]), choices) == index
    assert chosen(choices[index].title() + ".", choices) == index


@given(choice_lists, st.data(), st.sampled_from(["{} or {}", "{} and {}", "{}, {}", "({}) or ({})", "{}/{}"]))
def test_two_letters_name_none(choices: list[str], data: st.DataObject, form: str) -> None:
    one, other = data.draw(st.lists(st.sampled_from(LETTERS[: len(choices)]), min_size=2, max_size=2, unique=True))
    assert chosen(form.format(one, other), choices) is None


@given(st.text(), st.lists(st.text(), min_size=2, max_size=6))
def test_any_text_names_a_choice_that_is_there_or_none(answer: str, choices: list[str]) -> None:
    assert chosen(answer, choices) in (None, *range(len(choices)))


def test_accuracy_plus_counts_images_with_both_questions_right() -> None:
    right = {"OCR/1/1": True, "OCR/1/2": True, "OCR/2/1": True, "OCR/2/2": False, "count/1/1": False, "count/1/2": True}
    assert accuracy_plus(right) == pytest.approx(1 / 3)
