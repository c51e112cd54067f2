"""An event loop that stands still is told of, once."""

import logging
import threading

import pytest

from unifiedserve.engine.loop_watch import LoopWatch


async def test_stacks_are_printed_when_the_loop_stands_still(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    monkeypatch.setattr("faulthandler.dump_traceback", lambda file: told.set())
    watch = LoopWatch(0.02)
    with caplog.at_level(logging.ERROR):
        told.wait()  # on the loop
    watch.close()
    assert "the event loop has stood still for 0.02 s" in caplog.text
