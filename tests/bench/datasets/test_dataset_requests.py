"""Samples become requests: media first, choices by letters, the user's next turns as turns."""

from unifiedserve.bench.datasets.choices import YES_NO, labels
from unifiedserve.bench.datasets.prompts import prompt, to_requests
from unifiedserve.bench.datasets.sample import Sample
from unifiedserve.bench.requests import Expected, Medium, Text

VIDEO = Medium(kind="video", path="/v/-a.mp4", seconds=9.0, start=1.0, end=2.0)
IMAGES = tuple(Medium(kind="image", path=f"/i/{name}.jpg") for name in "ab")


def sample(**fields: object) -> Sample:
    given = {"id": "1", "where": "a.json, row 1", "question": "What is it? ", "media": (VIDEO,)} | fields
    return Sample(**given)  # type: ignore[arg-type]


def test_choices_are_lettered_and_expected() -> None:
    (request,) = to_requests([sample(choices=("a dog", "B"), right=1, task="count")], max_tokens=8)
    (turn,) = request.turns
    assert (request.id, request.kind) == ("1", "count")
    assert turn.parts == (
        VIDEO,
        Text("What is it?\nA. a dog\nB. B\nAnswer with the letter of the right choice."),
    )
    assert turn.expected == Expected(choices=("a dog", "B"), right=1)
    assert (turn.max_tokens, turn.exact) == (8, False)


def test_yes_and_no_have_no_letters() -> None:
    assert prompt(sample(choices=YES_NO)) == "What is it?\nAnswer with yes or no."
    assert labels(YES_NO) == ("Yes", "No")
    assert labels(("Yes", "No", "Perhaps")) == ("A", "B", "C")


def test_conversations_have_their_images_in_the_first_turn() -> None:
    asked = sample(media=IMAGES, question="What?", follow_ups=("Why?", "And?"))
    (request,) = to_requests([asked], max_tokens=64, exact=True, pause=2.5)
    assert request.kind == "image"
    assert [turn.parts for turn in request.turns] == [(*IMAGES, Text("What?")), (Text("Why?"),), (Text("And?"),)]
    assert [turn.pause for turn in request.turns] == [0, 2.5, 2.5]
    assert [turn.expected for turn in request.turns] == [None] * 3
    assert all(turn.exact for turn in request.turns)
