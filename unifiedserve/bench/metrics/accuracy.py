"""Measure whether answers are right, where that is known."""

from collections.abc import Iterable

from unifiedserve.bench.records import Record


def accuracy(records: Iterable[Record]) -> float | None:
    """Return the share of right answers among those that can be judged; None if there are none."""
    judged = [record.right for record in records if record.right is not None]
    return sum(judged) / len(judged) if judged else None
