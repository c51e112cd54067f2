"""Turn samples into requests."""

from collections.abc import Iterable

from unifiedserve.bench.datasets.choices import YES_NO, labels
from unifiedserve.bench.datasets.sample import Sample
from unifiedserve.bench.requests import Expected, Medium, Request, Text, Turn


def to_requests(
    samples: Iterable[Sample], *, max_tokens: int, exact: bool = False, pause: float = 0.0
) -> list[Request]:
    """Return a request for each sample, of the kind of its task. Without a task its medium gives the kind.

    The media come first, then the question with its choices. Answers have `max_tokens` tokens at most, or exactly; a
    follow-up comes `pause` seconds after the answer before.
    """
    return [
        Request(
            id=sample.id,
            kind=sample.task or (sample.media[0].kind if sample.media else "text"),
            turns=tuple(
                Turn(
                    parts=parts,
                    max_tokens=max_tokens,
                    exact=exact,
                    pause=pause if number else 0.0,
                    expected=None if number else _expected(sample),
                )
                for number, parts in enumerate(_turns(sample))
            ),
        )
        for sample in samples
    ]


def prompt(sample: Sample) -> str:
    """Return the question, the choices by their letters, and how to answer."""
    if not sample.choices:
        return sample.question
    if sample.choices == YES_NO:
        return f"{sample.question.rstrip()}\nAnswer with yes or no."
    lettered = [f"{label}. {text}" for label, text in zip(labels(sample.choices), sample.choices, strict=True)]
    return "\n".join([sample.question.rstrip(), *lettered, "Answer with the letter of the right choice."])


def _turns(sample: Sample) -> list[tuple[Text | Medium, ...]]:
    return [(*sample.media, Text(prompt(sample))), *((Text(text),) for text in sample.follow_ups)]


def _expected(sample: Sample) -> Expected | None:
    return Expected(choices=sample.choices, right=sample.right) if sample.choices else None
