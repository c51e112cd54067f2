"""A KV cache of codes, in bfloat16: pages are found again, shared, taken away and outlive a worker as others do."""

import concurrent.futures
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from cache_hits import LONG
from completions import KEEPS_NOTHING, TIGHT_BUFFERS, ask, metric, tokens
from daemon import Daemon
from media import image_part, make_image, text_part

from unifiedserve.config import MIB
from unifiedserve.memory.kv_cache import KVLayout
from unifiedserve.models.registry import load_config
from unifiedserve.placement import FIRST_MEMORY

CODED: dict[str, Any] = {"kv_cache_dtype": "int8", "dtype": "bfloat16"}

pytestmark = [
    pytest.mark.daemon("codes in the pages of real workers", **CODED, **TIGHT_BUFFERS),
    pytest.mark.second_daemon(**CODED, **KEEPS_NOTHING, speculative_tokens=0),
]

WHOLE: dict[str, Any] = {"max_tokens": 250, "extra_body": {"return_token_ids": True, "ignore_eos": True}}
QUESTIONS = ["What is a river?", "Tell me a story.", "Sing.", "And then?"]


def test_pages_are_as_many_as_the_codes_let_there_be(daemon: Daemon, checkpoint: Path) -> None:
    plain = KVLayout.of(load_config(checkpoint), 16, "float32").page_bytes
    assert daemon.engine.observation.buffers()[FIRST_MEMORY, "kv"][1] > 3 * MIB // plain


def test_a_prefix_that_is_found_gives_the_same_answer(daemon: Daemon, second_daemon: Daemon) -> None:
    content = [image_part(make_image(1, 150, 200)), text_part(LONG)]
    expected = tokens(second_daemon, *content, **WHOLE)
    first, second = (ask(daemon, *content, **WHOLE) for _ in range(2))
    assert [each.choices[0].token_ids for each in (first, second)] == [expected] * 2
    assert second.usage.prompt_tokens_details.cached_tokens > 100
    daemon.wait_idle()


def test_several_answers_share_a_prompt(daemon: Daemon, second_daemon: Daemon) -> None:
    options = {"n": 3, "temperature": 1.2, "seed": 11, "max_tokens": 40}
    answers = [ask(each, text_part(LONG), **options).choices for each in (daemon, second_daemon)]
    assert [choice.message.content for choice in answers[0]] == [choice.message.content for choice in answers[1]]
    daemon.wait_idle()


def test_preempted_answers_are_the_same(daemon: Daemon, second_daemon: Daemon) -> None:
    before = metric(daemon, "num_preemptions_total")
    expected = [tokens(second_daemon, text_part(text), **WHOLE) for text in QUESTIONS]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda text: tokens(daemon, text_part(text), **WHOLE), QUESTIONS * 2))
    assert answers == expected * 2
    assert metric(daemon, "num_preemptions_total") > before
    daemon.wait_idle()


def test_an_answer_outlives_its_worker(daemon: Daemon, second_daemon: Daemon) -> None:
    chunks = iter(ask(daemon, text_part(QUESTIONS[0]), stream=True, **WHOLE))
    got = list(next(chunks).choices[0].token_ids or ())
    os.kill(daemon.engine.observation.worker_pids()["decode"], signal.SIGKILL)
    got += [token for chunk in chunks for token in chunk.choices[0].token_ids or ()]
    assert got == tokens(second_daemon, text_part(QUESTIONS[0]), **WHOLE)
    daemon.wait_idle()
