"""A model with linear attention, whose sequences have a state: it is forked, preempted, handed over and freed."""

import concurrent.futures

import openai
import pytest
from completions import ask as complete
from completions import metric, tokens
from daemon import Daemon
from media import text_part

from unifiedserve.placement import FIRST_MEMORY

pytestmark = pytest.mark.daemon("states that real workers hold", model="qwen3_5_text", kv_page_tokens=4)

LONG = {"max_tokens": 72, "extra_body": {"return_token_ids": True, "ignore_eos": True}}
TIGHT = {"kv_page_tokens": 4, "kv_cache_mib": 1, "prefill_chunk_tokens": 8}
RIVER, STORY = text_part("What is a river?"), text_part("Tell me a story.")


def test_states_are_forked(daemon: Daemon) -> None:
    expected = tokens(daemon, RIVER, **LONG)
    forked = complete(daemon, RIVER, n=3, **LONG)
    assert [choice.token_ids for choice in forked.choices] == [expected] * 3
    seeded = [complete(daemon, STORY, n=3, temperature=1.2, seed=5, max_tokens=40) for _ in range(2)]
    assert [choice.token_ids for choice in seeded[0].choices] == [choice.token_ids for choice in seeded[1].choices]
    daemon.wait_idle()


def test_no_prefix_is_reused(daemon: Daemon) -> None:
    """The pages of a prefix do not hold the state after it."""
    first, second = (complete(daemon, RIVER, **LONG) for _ in range(2))
    assert first.choices[0].token_ids == second.choices[0].token_ids
    assert second.usage.prompt_tokens_details.cached_tokens == 0


@pytest.mark.second_daemon(**TIGHT)
def test_states_survive_preemption(daemon: Daemon, second_daemon: Daemon) -> None:
    """256 pages, of which each of four answers comes to need more than a quarter."""
    growing = {**LONG, "max_tokens": 250}
    expected = [tokens(daemon, part, **growing) for part in (RIVER, STORY)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda part: tokens(second_daemon, part, **growing), [RIVER, STORY] * 2))
    assert answers == expected * 2
    assert metric(second_daemon, "num_preemptions_total") > 0
    second_daemon.wait_idle()


@pytest.mark.daemon(**TIGHT)
def test_room_for_the_state_is_counted(daemon: Daemon) -> None:
    pages = daemon.engine.observation.buffers()[FIRST_MEMORY, "kv"][1]
    prompt = complete(daemon, RIVER, max_tokens=1).usage.prompt_tokens
    most = (pages - 4) * 4 - prompt + 1  # a state takes 4 pages; the last token's keys are not kept
    complete(daemon, RIVER, max_tokens=most, stream=True).close()
    with pytest.raises(openai.BadRequestError, match=f"needs {pages + 1} pages of the KV cache"):
        complete(daemon, RIVER, max_tokens=most + 1)
    daemon.wait_idle()
