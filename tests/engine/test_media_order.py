"""A chat template may put media in another order than a request has them in."""

from collections.abc import Callable

import pytest
from daemon import Daemon
from media import Clip, make_image
from questions import answer, ask


@pytest.mark.daemon("a template that moves media, through all stages", chat_template="images first")
def test_each_placeholder_gets_its_own_medium(daemon: Daemon, clips: Callable[[int], Clip]) -> None:
    large, small, clip = make_image(1, 150, 200), make_image(2, 60, 60), clips(9)
    as_rendered = ask([large, small, clip, "What is this?"], clips)
    reordered = ask([clip, large, small, "What is this?"], clips)
    other = ask([clip, small, large, "What is this?"], clips)
    assert answer(daemon, reordered) == answer(daemon, as_rendered)
    assert answer(daemon, other) != answer(daemon, as_rendered)
    daemon.wait_idle()
