"""Requests that steer the sampling, the order or the shape of answers, by the daemon as users have it."""

from typing import Any

import openai
import pytest
from completions import PLACEMENTS, ask, complete, tokens
from daemon import Daemon
from media import text_part

pytestmark = pytest.mark.daemon("parameters that steer the workers")
RIVER = text_part("What is a river?")


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_logit_bias_bans_and_forces(daemon: Daemon, placement: str) -> None:
    usual = tokens(daemon, RIVER)
    banned = tokens(daemon, RIVER, logit_bias={str(token): -100 for token in usual})
    assert not set(usual) & set(banned)
    assert set(tokens(daemon, RIVER, logit_bias={"70": 100}, temperature=1.0, seed=3)) == {70}
    with pytest.raises(openai.BadRequestError, match="vocabulary") as refused:
        ask(daemon, RIVER, logit_bias={"99999": 1})
    assert refused.value.param == "logit_bias"
    daemon.wait_idle()


def test_completions_are_those_of_the_same_tokens(daemon: Daemon) -> None:
    tokenizer = daemon.engine.processor.tokenizer
    messages = [{"role": "user", "content": "What is a river?"}]
    ids = daemon.engine.processor.chat.encode(messages)
    expected = ask(daemon, RIVER).choices[0].message.content
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    answer = complete(daemon, [rendered, "Once"], n=2, echo=True)
    assert [choice.text for choice in answer.choices[:2]] == [rendered + expected] * 2
    assert complete(daemon, ids).choices[0].text == expected
    choice = complete(daemon, ids, logprobs=3).choices[0]
    assert choice.text.startswith("".join(choice.logprobs.tokens)[:1])
    assert len(choice.logprobs.tokens) == 16
    for logprob, top in zip(choice.logprobs.token_logprobs, choice.logprobs.top_logprobs, strict=True):
        assert logprob == max(top.values())
    daemon.wait_idle()


def test_best_of_is_the_likeliest_of_its_answers(daemon: Daemon) -> None:
    options: dict[str, Any] = {"temperature": 1, "seed": 4, "logprobs": 0}
    every = complete(daemon, "The river", n=5, **options).choices
    mean = {choice.text: sum(choice.logprobs.token_logprobs) / len(choice.logprobs.tokens) for choice in every}
    best = complete(daemon, "The river", n=2, best_of=5, **options).choices
    assert [choice.text for choice in best] == sorted(mean, key=lambda text: -mean[text])[:2]
    daemon.wait_idle()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_deadline_ends_a_request_with_its_reason(daemon: Daemon, placement: str) -> None:
    with pytest.raises(openai.InternalServerError, match=r"deadline of 0\.01 s") as late:
        ask(daemon, RIVER, max_tokens=8000, extra_body={"ignore_eos": True, "deadline": 0.01})
    assert late.value.status_code == 504
    assert tokens(daemon, RIVER, extra_body={"deadline": 600, "return_token_ids": True})
    daemon.wait_idle()


@pytest.mark.daemon(max_requests=2, max_running=1)
def test_the_lower_priority_number_goes_first(daemon: Daemon) -> None:
    """One sequence decodes at a time: first come, first served would keep the second one until the first has ended."""
    slow = ask(daemon, RIVER, max_tokens=8000, stream=True, extra_body={"priority": 5, "ignore_eos": True})
    next(iter(slow))
    assert tokens(daemon, RIVER, extra_body={"priority": -5, "return_token_ids": True})
    daemon.wait_for(lambda: daemon.engine.observation.in_flight < 2)
    assert daemon.engine.observation.in_flight == 1, "the first one has ended before"
    daemon.wait_for(lambda: bool(daemon.engine.observation.worked_on("decode")))
    slow.close()
    daemon.wait_idle()
