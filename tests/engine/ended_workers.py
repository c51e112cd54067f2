"""Answers while a worker ends."""

import concurrent.futures
import os
import signal
from typing import Any

from daemon import Daemon
from questions import TOKENS, Question

NAMES = ["text", "1 image", "8 frames", "image and video"]


def answer(daemon: Daemon, asked: Question) -> list[int]:
    body: dict[str, Any] = {"return_token_ids": True, **asked.options}
    completion: Any = daemon.client.chat.completions.create(
        model=daemon.engine.model_name, messages=asked.messages, temperature=0, max_tokens=TOKENS, extra_body=body
    )
    return list(completion.choices[0].token_ids)


def check_after_a_death(
    daemon: Daemon,
    asked: list[Question],
    expected: list[list[int]],
    instance: str,
    how: signal.Signals = signal.SIGKILL,
) -> None:
    """End a worker while all questions are asked four times: each gets its answer, nothing is left, no other ends."""
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(answer, daemon, each) for each in asked * 4]
        pids = daemon.engine.observation.worker_pids
        before = pids()
        os.kill(before[instance], how)
        assert [each.result() for each in answers] == expected * 4
    daemon.wait_for(lambda: pids().get(instance) not in (None, before[instance]))
    daemon.wait_healthy()
    daemon.wait_idle()
    assert {name for name, pid in pids().items() if pid != before[name]} == {instance}
