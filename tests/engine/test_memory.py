"""Pages are free again as soon as they are consumed, so a long video needs few at a time."""

from collections.abc import Callable

import pytest
from daemon import Daemon
from media import Clip, text_part, video_part
from test_life_of_requests import tokens

FRAMES = 128


@pytest.mark.daemon("pages that stages of real workers hold at once")
@pytest.mark.second_daemon(encode_budget_tokens=1, prefill_chunk_tokens=48, visual_buffer_mib=2, order="fcfs")
def test_a_long_video_holds_few_visual_pages_at_once(
    daemon: Daemon, second_daemon: Daemon, clips: Callable[[int], Clip]
) -> None:
    """One unit of the encoder at a time, prefilled two units at a time: at most a few units are waiting.

    Steps are as long as their budgets here, never as short as what was measured on a busy machine says.
    """
    every_frame = {"media_io_kwargs": {"video": {"num_frames": -1}}, "return_token_ids": True}
    question = [video_part(clips(FRAMES)), text_part("What happens?")]
    expected = tokens(daemon, *question, extra_body=every_frame)
    before = daemon.engine.observation.peaks()["visual"]
    assert tokens(second_daemon, *question, extra_body=every_frame) == expected
    second_daemon.wait_idle()
    peaks, buffers = second_daemon.engine.observation.peaks(), second_daemon.engine.observation.buffers()
    assert 0 < peaks["visual"] <= 12 < before
    for buffer, (used, total) in buffers.items():
        assert used == 0
        assert 0 < peaks[buffer] <= total
