"""Log probabilities of prompts are transformers' own, however the prompt was computed, and come once."""

import concurrent.futures
import copy
import os
import signal
from functools import partial
from typing import Any

import pytest
import torch
from completions import TIGHT_BUFFERS, ask, complete, metric
from daemon import Daemon
from media import image_part, make_image, text_part
from questions import PIECES
from reference import Case, Reference, score

from unifiedserve.placement import FIRST_MEMORY

pytestmark = pytest.mark.daemon("prompts that real workers compute piece by piece", **PIECES)

COUNT = 3
IMAGE = make_image(5, 90, 120)
PARTS = [image_part(IMAGE), text_part("What is this, and where does the river end?")]
SCORED = {"extra_body": {"prompt_logprobs": COUNT, "return_token_ids": True, "ignore_eos": True}}


@pytest.fixture(scope="module")
def exact(hf: Reference) -> Any:
    """Return transformers' model in float64, from which its float32 is as far away as ours."""
    return copy.deepcopy(hf.model).double()


@pytest.fixture(scope="module")
def expected(hf: Reference, exact: Any) -> tuple[list[int], torch.Tensor]:
    """Token ids of the question about the image, and log probabilities [n, vocab] after each."""
    inputs = hf.inputs(Case([{"role": "user", "content": [{"type": "image"}, PARTS[1]]}], images=[IMAGE]))
    return inputs["input_ids"][0].tolist(), score(exact, inputs)


def check(scores: list[Any], token_ids: list[int], logprobs: torch.Tensor) -> None:
    assert scores[0] is None
    assert len(scores) == len(token_ids)
    for entry, token, row in zip(scores[1:], token_ids[1:], logprobs, strict=False):
        assert set(entry) == {str(token), *map(str, row.topk(COUNT).indices.tolist())}
        assert entry[str(token)]["rank"] == 1 + int((row > row[token]).sum())
        for other, described in entry.items():
            assert described["logprob"] == pytest.approx(float(row[int(other)]), abs=1e-4)


@pytest.mark.parametrize(("placement", "prefill_chunk_tokens"), [("monolithic", 0), ("shared", 16)])
def test_alone_and_among_others(
    daemon: Daemon, expected: tuple[list[int], torch.Tensor], placement: str, prefill_chunk_tokens: int
) -> None:
    questions = [partial(ask, daemon, *PARTS, **SCORED), partial(ask, daemon, text_part("What is a river?"))]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(question) for question in questions * 4]
        answers = [future.result() for future in futures]
    for answer in answers[::2]:
        check(answer.prompt_logprobs, *expected)
    assert all(answer.choices[0].token_ids == answers[0].choices[0].token_ids for answer in answers[::2])
    daemon.wait_idle()


def test_echo_scores_texts_without_an_answer(daemon: Daemon, exact: Any) -> None:
    tokenizer = daemon.engine.processor.tokenizer
    text = "The river runs through the valley and the town to the sea."
    ids = tokenizer(text)["input_ids"]
    logprobs = score(exact, {"input_ids": torch.tensor([ids])})
    computed = [float(row[token]) for row, token in zip(logprobs, ids[1:], strict=False)]
    for prompt in (text, ids):
        for _ in range(2):  # the second time, its pages are cached
            answer = complete(daemon, prompt, echo=True, max_tokens=0, logprobs=1)
            (choice,) = answer.choices
            assert (choice.text, choice.finish_reason) == (text, "length")
            assert choice.logprobs.tokens == [tokenizer.decode([token]) for token in ids]
            assert "".join(choice.logprobs.tokens) == text
            assert choice.logprobs.token_logprobs[0] is None
            assert choice.logprobs.token_logprobs[1:] == pytest.approx(computed, abs=1e-4)
            assert answer.usage.prompt_tokens_details.cached_tokens == 0
    several = complete(daemon, [ids, ids[:4]], echo=True, max_tokens=0, logprobs=0, n=2)
    assert [len(choice.logprobs.tokens) for choice in several.choices] == [len(ids)] * 2 + [4] * 2
    assert several.usage.completion_tokens == 0
    followed = complete(daemon, ids, echo=True, max_tokens=5, logprobs=0).choices[0].logprobs
    alone = complete(daemon, ids, max_tokens=5, logprobs=0).choices[0].logprobs
    assert followed.token_logprobs[1:] == pytest.approx([*computed, *alone.token_logprobs], abs=1e-4)
    assert followed.text_offset[len(ids)] == len(text)
    daemon.wait_idle()


def test_a_killed_worker_costs_none(daemon: Daemon, expected: tuple[list[int], torch.Tensor]) -> None:
    """While most of a long prompt is still to be computed, and a short one is being answered."""
    seen = daemon.engine.observation
    ids = [70 + number % 200 for number in range(1500)]
    whole = partial(complete, daemon, ids, echo=True, max_tokens=0, logprobs=0)
    before = whole().choices[0].logprobs.token_logprobs
    decode = seen.worker_pids()["decode"]
    os.kill(decode, signal.SIGSTOP)  # so that the short one has not ended before the long one comes
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        short = pool.submit(ask, daemon, *PARTS, max_tokens=100, **SCORED)
        long = pool.submit(whole)
        daemon.wait_for(lambda: seen.in_flight == 2 and seen.buffers().get((FIRST_MEMORY, "kv"), (0, 0))[0] > 0)
        os.kill(seen.worker_pids()["encode-prefill"], signal.SIGKILL)
        os.kill(decode, signal.SIGCONT)
        check(short.result().prompt_logprobs, *expected)
        assert long.result().choices[0].logprobs.token_logprobs[1:] == pytest.approx(before[1:], abs=1e-4)
    daemon.wait_idle()


@pytest.mark.daemon(**TIGHT_BUFFERS, kv_page_tokens=16)
def test_preempted_requests_have_them_once(daemon: Daemon, expected: tuple[list[int], torch.Tensor]) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(ask, daemon, *PARTS, max_tokens=200, seed=seed, **SCORED) for seed in range(4)]
        for future in futures:
            check(future.result().prompt_logprobs, *expected)
    assert metric(daemon, "num_preemptions_total") > 0
    daemon.wait_idle()
