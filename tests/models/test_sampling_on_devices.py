"""Sampling where the logits are: on a stand-in for a GPU the tokens of the CPU, with as few waits as promised."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import deferred_device
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from unifiedserve.messages.sampling_params import CANDIDATES, SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.messages.wire import PrefillRequest, PromptLogprobs, PromptVector
from unifiedserve.models.pooling import Pooling
from unifiedserve.sampling.sample import sample
from unifiedserve.worker.language.prompt_reader import PromptReader

DEVICE = "deferred:0"
VOCAB = 5000
LOGITS = torch.randn(8, VOCAB, generator=torch.Generator().manual_seed(1)) * 4
EOS = (3, 17)
GRAMMAR = torch.arange(VOCAB) % 7 == 3

KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "plain": {"temperature": 0.8},
    "top_k": {"top_k": 20},
    "top_p": {"top_p": 0.9, "temperature": 0.7},
    "min_p": {"min_p": 0.02},
    "as many as are looked at": {"top_k": CANDIDATES},
    "all cuts": {"top_k": 50, "top_p": 0.8, "min_p": 0.01},
    "bias": {"temperature": 0, "logit_bias": {5: 30.0, 9: -100.0}},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2, "top_p": 0.5},
    "early": {"temperature": 0, "min_tokens": 9, "stop_token_ids": (5, 10**9)},
}


@pytest.fixture(autouse=True)
def counted_anew() -> Iterator[None]:
    deferred_device.install()
    yield
    deferred_device.synchronize()


def requests(kinds: list[str], **more: Any) -> list[SamplingParams]:
    return [SamplingParams(**{"seed": row, **KINDS[kind], **more}) for row, kind in enumerate(kinds)]


def assert_as_on_the_cpu(
    logits: Tensor, params: list[SamplingParams], waits: int, allowed: dict[int, Tensor] | None = None
) -> None:
    """Compare everything that is sampled; the host must wait so often, and for no upload."""
    histories = [[row, 5, 5, 7 + row, VOCAB + 3, 8, 8, 9] for row in range(len(params))]
    arguments = (params, histories, [3] * len(params), EOS, allowed)
    expected = sample(logits, *arguments)
    remote = logits.to(DEVICE)
    deferred_device.synchronize()
    deferred_device.reset()
    assert sample(remote, *arguments) == expected
    assert (len(deferred_device.waits()), deferred_device.uploads(), deferred_device.copies()) == (waits, 0, [])
    assert torch.equal(remote.cpu(), logits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 8])
def test_the_host_waits_once_for_tokens(kind: str, rows: int) -> None:
    assert_as_on_the_cpu(LOGITS[:rows], requests([kind] * rows), 1)


def test_all_kinds_side_by_side_take_one_wait() -> None:
    kinds = [*KINDS]
    logits = LOGITS.repeat(2, 1)[: len(kinds)]
    assert_as_on_the_cpu(logits, requests(kinds), 1, {0: GRAMMAR, 4: GRAMMAR, 8: GRAMMAR})


@pytest.mark.parametrize("kinds", [["greedy"] * 8, ["greedy", "top_p"] * 4])
def test_log_probabilities_take_another_wait(kinds: list[str]) -> None:
    params = requests(kinds, logprobs=3)
    assert_as_on_the_cpu(LOGITS, params, 2)
    params[1:3] = requests(["plain", "top_k"], logprobs=None)
    assert_as_on_the_cpu(LOGITS, params, 2)


@pytest.mark.parametrize("values", [{"top_p": 0.999}, {"min_p": 1e-4}, {"top_k": CANDIDATES + 9}])
def test_many_likely_tokens_take_another_wait(values: dict[str, Any]) -> None:
    params = [SamplingParams(seed=row, **values) for row in range(7)]
    assert_as_on_the_cpu(LOGITS / 8, [*params, SamplingParams(seed=8, top_k=5)], 2)


def test_one_choice_of_several_for_a_prompt() -> None:
    assert_as_on_the_cpu(LOGITS[:1].expand(6, -1), requests(["top_p", "bias"] * 3), 1)


def test_a_grammar_that_leaves_only_ends_may_end() -> None:
    only = torch.zeros(VOCAB, dtype=torch.bool)
    only[[*EOS]] = True
    params = requests(["early", "early"])
    assert_as_on_the_cpu(LOGITS[:2], params, 1, {0: only})
    ended, went_on = sample(LOGITS[:2], params, [[], []], [0, 0], EOS, {0: only})
    assert ended.token in EOS
    assert went_on.token not in EOS


@given(
    top_k=st.sampled_from([0, 3, 30, CANDIDATES - 1, CANDIDATES, CANDIDATES + 1]),
    top_p=st.floats(1e-3, 1),
    min_p=st.sampled_from([0.0, 1e-4, 0.05, 0.3]),
)
def test_equal_logits_are_in_the_order_of_their_ids_whatever_topk_does(top_k: int, top_p: float, min_p: float) -> None:
    """Among many that are equal, as bfloat16's are, and at the last candidate, too."""
    logits = LOGITS.bfloat16().float()
    logits[1] = logits[1].round()
    logits[2, 100:] = logits[2].min()
    logits[3] = 0
    params = [SamplingParams(seed=row, top_k=top_k, top_p=top_p, min_p=min_p) for row in range(8)]

    def tokens() -> list[int]:
        return [each.token for each in sample(logits, params, [[]] * 8, [0] * 8)]

    expected = [_by_full_sort(row, each) for row, each in zip(logits, params, strict=True)]
    assert tokens() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "topk", _topk_of_higher_ids)
        assert tokens() == expected


def _by_full_sort(logits: Tensor, params: SamplingParams) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unifiedserve.sampling.sample.CANDIDATES", VOCAB)
        return sample(logits[None], [params], [[]], [0])[0].token


def _topk_of_higher_ids(self: Tensor, count: int, sorted: bool = True) -> Any:
    """Do what topk may do: take the equal logits with the highest ids, in no order."""
    values, places = self.flip(1).sort(descending=True, stable=True)
    return SimpleNamespace(values=values[:, :count].flip(1), indices=self.shape[1] - 1 - places[:, :count].flip(1))


def read(hidden: Tensor, chunks: list[int], **asked: Any) -> list[PromptLogprobs | PromptVector]:
    """Read a prompt with a token behind the vocabulary; `hidden` are its logits."""
    token_ids = [*range(len(hidden) - 1), VOCAB + 1]
    params = SamplingParams(max_tokens=0, prompt_logprobs=asked.pop("count", None))
    request = PrefillRequest(
        ticket=Ticket(4, 0),
        token_ids=token_ids,
        num_prompt=len(token_ids),
        media=[],
        sampling=params,
        indices=[0],
        **asked,
    )
    adapter: Any = SimpleNamespace(logits=lambda states: states, pooling=Pooling("mean", False))
    prompt: Any = SimpleNamespace(request=request, pooled=None)
    messages, start = [], 0
    for part in torch.split(hidden, chunks):
        messages += list(PromptReader(adapter).read(prompt, start, part))
        start += len(part)
    return messages


@pytest.mark.parametrize(
    ("asked", "waits"),
    [({"count": 3}, 3), ({"count": 0}, 3), ({"embed": True}, 1), ({}, 0)],
)
def test_a_prompt_is_read_with_one_wait_a_block(asked: dict[str, Any], waits: int) -> None:
    hidden = torch.randn(100, 40, generator=torch.Generator().manual_seed(2))
    expected = read(hidden, [70, 30], **asked)
    remote = hidden.to(DEVICE)
    deferred_device.synchronize()
    deferred_device.reset()
    assert read(remote, [70, 30], **asked) == expected
    assert (len(deferred_device.waits()), deferred_device.uploads(), deferred_device.copies()) == (waits, 0, [])
