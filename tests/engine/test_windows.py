"""Videos that are larger than the buffers which they go through: exact, found again, and safe from deaths."""

import concurrent.futures
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from cache_hits import Hits
from completions import ask, tokens
from daemon import Daemon
from media import Clip, text_part, video_part

Clips = Callable[[int], Clip]

SMALL: dict[str, Any] = {"patch_buffer_mib": 1, "visual_buffer_mib": 1}
EVERY_FRAME: dict[str, Any] = {"media_io_kwargs": {"video": {"num_frames": -1}}, "return_token_ids": True}
FRAMES = 64

pytestmark = pytest.mark.daemon("buffers that hold a part of a video", **SMALL)


def _after(daemon: Daemon, text: str, clips: Clips) -> list[int]:
    return tokens(daemon, text_part(text), video_part(clips(FRAMES)), extra_body=EVERY_FRAME)


def test_what_the_buffer_still_holds_is_found_again(daemon: Daemon, serve: Callable[..., Daemon], clips: Clips) -> None:
    """The same video behind another text: its last units are in the cache, the first ones are decoded again."""
    hits, texts = Hits(daemon), ["Look.", "Tell me all about what happens here."]
    first = _after(daemon, texts[0], clips)
    hits.take()
    second = _after(daemon, texts[1], clips)
    assert hits.take()["visual hits"] > 0
    assert [first, second] == [_after(serve(), text, clips) for text in texts]
    daemon.wait_idle()


@pytest.mark.long
@pytest.mark.parametrize("placement", ["shared", "monolithic", "2v+2e+p+d", "2e+2p+2d", "ed+2p"])
@pytest.mark.parametrize("stage", ["vision", "encode", "prefill", "decode"])
def test_a_death_loses_no_request(
    daemon: Daemon, serve: Callable[..., Daemon], clips: Clips, placement: str, stage: str
) -> None:
    def answers(of: Daemon) -> list[list[int]]:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            asked = pool.map(lambda number: _after(of, f"Number {number}.", clips), range(8))
            if of is daemon:
                next(asked)
                pids = daemon.engine.observation.worker_pids()
                os.kill(next(pid for name, pid in pids.items() if stage in name or name == "worker"), signal.SIGKILL)
            return list(asked)

    assert answers(daemon) == answers(serve())[-7:]
    daemon.wait_healthy()
    daemon.wait_idle()


def test_a_client_that_leaves_in_the_middle_frees_everything(daemon: Daemon, clips: Clips) -> None:
    for _ in range(3):
        stream = ask(daemon, video_part(clips(FRAMES)), stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
        stream.close()
    daemon.wait_idle()
