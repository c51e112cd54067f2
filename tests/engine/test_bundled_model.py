"""What a newcomer gets: the bundled model answers questions about encoded files of scenes that it was never trained on.

`bench/accuracy.py` is the long form.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from daemon import Daemon

from unifiedserve.demo.examination import examine, is_right, papers, row_of
from unifiedserve.models.default import DEFAULT_CHECKPOINT

SCENES = 20


def test_answers_are_right(serve: Callable[..., Daemon], tmp_path: Path) -> None:
    daemon = serve(model=str(DEFAULT_CHECKPOINT), allowed_local_media_path=str(tmp_path))
    asked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for paper, turn, answer in examine(daemon.url, papers(SCENES, tmp_path, seed=1)):
        asked[row_of(paper.scene, turn)] += 1
        right[row_of(paper.scene, turn)] += is_right(paper.scene, turn, answer)
    assert asked.total() >= 200
    assert right.total() >= 0.92 * asked.total(), {row: f"{right[row]}/{asked[row]}" for row in sorted(asked)}
