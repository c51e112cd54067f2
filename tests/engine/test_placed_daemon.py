"""A daemon whose workers have cores of their own: who runs where, and the answers of `transformers`."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from daemon import Daemon
from media import Clip
from questions import TOKENS, question
from reference import Reference

from unifiedserve.placement import read_placement

pytestmark = pytest.mark.daemon(
    "its workers are told their cores, and try out the sizes of steps", placement="ep-d", budgets="profiled"
)


def test_workers_keep_to_their_cores(daemon: Daemon) -> None:
    cores = {
        name: {os.sched_getaffinity(int(thread)) == wanted for thread in os.listdir(f"/proc/{pid}/task")}
        for name, pid in daemon.engine.observation.worker_pids().items()
        for wanted in [set(cores_of(name))]
    }
    assert cores == {"vision-encode-prefill": {True}, "decode": {True}}


@pytest.mark.parametrize("name", ["text", "image and video"])
def test_answers_equal_generate(daemon: Daemon, hf: Reference, clips: Callable[[int], Clip], name: str) -> None:
    asked = question(name, clips)
    body: dict[str, Any] = {"return_token_ids": True, **asked.options}
    choice = daemon.client.chat.completions.create(
        model=daemon.engine.model_name, messages=asked.messages, temperature=0, max_tokens=TOKENS, extra_body=body
    ).choices[0]
    assert choice.token_ids == hf.generate(asked.case, TOKENS)
    daemon.wait_idle()


def cores_of(name: str) -> tuple[int, ...]:
    available = sorted(os.sched_getaffinity(0))
    return next(each.cores for each in read_placement("ep-d", available).instances if each.name == name)
