"""Workers of two ranks each answer as transformers does, and are replaced whole when one of their ranks ends."""

import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from completions import ask, tokens
from daemon import Daemon
from media import Clip, text_part
from questions import TOKENS, Question, answer, question
from reference import Reference

pytestmark = pytest.mark.daemon(
    "its workers are several ranks", tensor_parallel_size=2, encoder_ranks="tp2", worker_timeout=10.0
)

WHOLE: dict[str, Any] = {"max_tokens": 150, "extra_body": {"return_token_ids": True, "ignore_eos": True}}


def ranks_of(daemon: Daemon, instance: str) -> list[psutil.Process]:
    """Return the processes of an instance's other ranks."""
    return psutil.Process(daemon.engine.observation.worker_pids()[instance]).children()


@pytest.mark.parametrize("name", ["text", "image and video"])
def test_the_tokens_are_those_of_generate(
    daemon: Daemon, clips: Callable[[int], Clip], hf: Reference, name: str
) -> None:
    asked: Question = question(name, clips)
    assert answer(daemon, asked) == hf.generate(asked.case, TOKENS)
    assert [len(ranks_of(daemon, instance)) for instance in ("vision", "encode-prefill", "decode")] == [0, 1, 1]


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)], ids=["killed", "stopped"]
)
def test_an_answer_outlives_a_rank(daemon: Daemon, how: signal.Signals) -> None:
    expected = tokens(daemon, text_part("Sing."), **WHOLE)
    (rank,), worker = ranks_of(daemon, "decode"), daemon.engine.observation.worker_pids()["decode"]
    chunks = iter(ask(daemon, text_part("Sing."), stream=True, **WHOLE))
    got = list(next(chunks).choices[0].token_ids or ())
    rank.send_signal(how)
    got += [token for chunk in chunks for token in chunk.choices[0].token_ids or ()]
    assert got == expected
    daemon.wait_for(lambda: daemon.engine.observation.worker_pids().get("decode") not in (None, worker))
    daemon.wait_healthy()
    daemon.wait_idle()
    assert not rank.is_running()
    assert len(ranks_of(daemon, "decode")) == 1
