"""What a newcomer gets: the bundled model answers questions about encoded files of scenes that it was never trained on.

`python -m training.accuracy` is the long form.
"""

from collections import Counter
from pathlib import Path

import pytest
from completions import BUNDLED
from daemon import Daemon

from training.examination import examine, is_right, papers, row_of

SCENES = 12


@pytest.mark.daemon("files, decoding and the model together", **BUNDLED)
def test_answers_are_right(daemon: Daemon, local_media: Path) -> None:
    asked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for paper, turn, answer in examine(daemon.url, papers(SCENES, local_media, seed=1)):
        asked[row_of(paper.scene, turn)] += 1
        right[row_of(paper.scene, turn)] += is_right(paper.scene, turn, answer)
    assert asked.total() >= 120
    assert right.total() >= 0.92 * asked.total(), {row: f"{right[row]}/{asked[row]}" for row in sorted(asked)}
