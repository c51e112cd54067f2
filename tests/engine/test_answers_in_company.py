"""Long greedy answers in bfloat16 are the same in any company, to the last token, whatever the bits of the weights."""

import concurrent.futures
import os
import signal
from typing import Any

import pytest
from cache_hits import LONG
from completions import KEEPS_NOTHING, ask, metric, tokens
from daemon import Daemon
from media import image_part, make_image, text_part

BFLOAT16: dict[str, Any] = {"dtype": "bfloat16", "kv_cache_mib": 4, "torch_threads": 2}
CROWDED: dict[str, Any] = {**BFLOAT16, "prefill_chunk_tokens": 48}
ALONE: dict[str, Any] = {**BFLOAT16, **KEEPS_NOTHING, "speculative_tokens": 0, "placement": "monolithic"}
WHOLE: dict[str, Any] = {"max_tokens": 1500, "extra_body": {"return_token_ids": True, "ignore_eos": True}}
QUESTIONS: list[list[Any]] = [
    [text_part("What is a river?")],
    [image_part(make_image(1, 150, 200)), text_part(LONG)],
    [image_part(make_image(2, 90, 300)), image_part(make_image(3, 200, 200)), text_part("Compare.")],
]


def of_bits(quantization: str) -> Any:
    options = {"quantization": quantization}
    marks = [pytest.mark.daemon(**CROWDED, **options), pytest.mark.second_daemon(**ALONE, **options)]
    return pytest.param(id=quantization, marks=[pytest.mark.long, *marks])


@pytest.mark.daemon("long answers in bfloat16, beside others and alone")
@pytest.mark.parametrize((), [of_bits("none"), of_bits("int8"), of_bits("int4")])
def test_long_answers_are_the_same(daemon: Daemon, second_daemon: Daemon) -> None:
    """Beside others, chunked, drafted, found in a cache, preempted, and computed again after a worker's death."""
    expected = [tokens(second_daemon, *question, **WHOLE) for question in QUESTIONS]
    assert all(len(answer) == WHOLE["max_tokens"] for answer in expected)
    before = metric(daemon, "num_preemptions_total")
    with concurrent.futures.ThreadPoolExecutor(3 * len(QUESTIONS)) as pool:
        answers = list(pool.map(lambda question: tokens(daemon, *question, **WHOLE), 3 * QUESTIONS))
    assert answers == 3 * expected
    assert metric(daemon, "num_preemptions_total") > before
    chunks = iter(ask(daemon, *QUESTIONS[1], stream=True, **WHOLE))
    got = list(next(chunks).choices[0].token_ids or ())
    os.kill(daemon.engine.observation.worker_pids()["decode"], signal.SIGKILL)
    got += [token for chunk in chunks for token in chunk.choices[0].token_ids or ()]
    assert got == expected[1]
    daemon.wait_idle()
