"""Greedy float32 answers over HTTP equal transformers' generate, token for token."""

import concurrent.futures
from collections.abc import Callable
from typing import Any

import pytest
from daemon import Daemon
from media import Clip
from questions import NAMES, PIECES, answer, expected_answers, question
from reference import Reference

Clips = Callable[[int], Clip]


@pytest.fixture(scope="session")
def expected(once_a_run: Callable[..., Any], hf: Reference, clips: Clips) -> dict[str, list[int]]:
    return expected_answers(once_a_run, hf, clips)


# Ends and middle of the chunks of prefill; `test_any_mix` of every family draws those between.
ENGINES: list[dict[str, Any]] = [
    PIECES,
    {"prefill_chunk_tokens": 0},
    {"prefill_chunk_tokens": 100, "no_overlap": True},
    {"placement": "monolithic", **PIECES},
    {"placement": "monolithic", "prefill_chunk_tokens": 100, "slo_tbt": 20.0, "torch_threads": 0},
]
OTHER_ENGINES: list[dict[str, Any]] = [
    {"slo_tbt": 20.0},
    {"placement": "monolithic", **PIECES, "prefill_chunk_tokens": 0},
]


@pytest.mark.daemon("every way to plan the stages of real workers gives the same tokens")
@pytest.mark.parametrize(
    "options",
    [
        *[pytest.param(options, marks=pytest.mark.daemon(**options)) for options in ENGINES],
        *[pytest.param(options, marks=[pytest.mark.daemon(**options), pytest.mark.long]) for options in OTHER_ENGINES],
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_answers_equal_generate(
    options: dict[str, Any], daemon: Daemon, clips: Clips, expected: dict[str, list[int]]
) -> None:
    alone = {name: answer(daemon, question(name, clips)) for name in NAMES}
    assert alone == expected
    daemon.wait_idle()
    crowd = [NAMES[i % len(NAMES)] for i in range(17)]
    with concurrent.futures.ThreadPoolExecutor(len(crowd)) as pool:
        answers = list(pool.map(lambda name: answer(daemon, question(name, clips)), crowd))
    assert dict(zip(crowd, answers, strict=True)) == expected
    assert answers == [expected[name] for name in crowd]
    daemon.wait_idle()
