"""Sampling: exact distributions, reproducible tokens, penalties as transformers and OpenAI define them."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unifiedserve.messages.sampling_params import ParamError, SamplingParams
from unifiedserve.sampling import sample as sampling
from unifiedserve.sampling.sample import sample

VOCAB = 40
LOGITS = torch.randn(VOCAB, generator=torch.Generator().manual_seed(1)) * 2
DRAWS = 20_000

settings_of_a_request = st.fixed_dictionaries(
    {
        "temperature": st.floats(0.05, 3),
        "top_k": st.integers(-1, VOCAB + 5),
        "top_p": st.floats(0.01, 1),
        "min_p": st.floats(0, 1),
        "repetition_penalty": st.floats(0.5, 2),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
    }
)


def probabilities(
    logits: torch.Tensor, params: SamplingParams, history: list[int], index: int
) -> npt.NDArray[np.float64]:
    """The distribution that `sample` must draw from, one step after another, token by token."""
    scores = [float(value) for value in logits]
    output = history[len(history) - index :]
    for token in set(history):
        penalty = params.repetition_penalty
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    for token in set(output):
        scores[token] -= params.frequency_penalty * output.count(token) + params.presence_penalty
    values = np.exp((np.array(scores) - max(scores)) / params.temperature)
    values[values < params.min_p * (1 - 1e-6)] = 0
    order = np.argsort(-values, kind="stable")
    if params.top_k > 0:
        values[order[params.top_k :]] = 0
    values /= values.sum()
    before = np.cumsum(values[order]) - values[order]
    values[order[1:][before[1:] >= params.top_p]] = 0
    return np.asarray(values / values.sum())


def draw(
    logits: torch.Tensor, params: SamplingParams, history: list[int], index: int, count: int
) -> npt.NDArray[np.int64]:
    requests = [params.for_choice(choice) for choice in range(count)]
    rows = logits.expand(count, -1)
    return np.array([t.token for t in sample(rows, requests, [history] * count, [index] * count)])


@pytest.mark.parametrize(
    "given_params",
    [
        {},
        {"temperature": 0.4},
        {"temperature": 2.5},
        {"top_k": 5},
        {"top_p": 0.7},
        {"min_p": 0.1},
        {"top_k": 12, "top_p": 0.8, "min_p": 0.02, "temperature": 1.5},
        {"repetition_penalty": 1.7, "presence_penalty": 0.8, "frequency_penalty": 0.5},
        {"frequency_penalty": -1.0, "top_p": 0.95},
    ],
)
def test_distribution(given_params: dict[str, Any]) -> None:
    """Chi-square against the exact probabilities, five deviations above its mean at most (seeds are fixed)."""
    params = SamplingParams(seed=1234, **given_params)
    history = [3, 5, 5, 8, 13, 21, 5]
    expected = probabilities(LOGITS, params, history, 4) * DRAWS
    observed = np.bincount(draw(LOGITS, params, history, 4, DRAWS), minlength=VOCAB)
    assert observed[expected == 0].sum() == 0
    common = expected >= 5
    rare = (observed[~common].sum(), expected[~common].sum())
    terms = [(o - e) ** 2 / e for o, e in [*zip(observed[common], expected[common], strict=True), rare] if e > 0]
    freedom = len(terms) - 1
    assert sum(terms) < freedom + 5 * math.sqrt(2 * freedom) + 1


@given(values=settings_of_a_request, seed=st.integers(0, 2**63 - 1), data=st.data())
def test_nothing_outside_a_grammar_comes(values: dict[str, Any], seed: int, data: st.DataObject) -> None:
    """Other rows, and the logits that are reported, do not notice."""
    inside = data.draw(st.sets(st.integers(0, VOCAB - 1), min_size=1))
    index = data.draw(st.integers(0, 5))
    allowed = {0: torch.isin(torch.arange(VOCAB), torch.tensor(sorted(inside)))}
    params = SamplingParams(seed=seed, min_tokens=4, logprobs=0, **values)
    rows, histories = LOGITS.expand(2, -1), [list(range(index + 2))] * 2
    constrained, free = sample(rows, [params] * 2, histories, [index] * 2, (1, 2), allowed)
    (alone,) = sample(rows[:1], [params], histories[:1], [index], (1, 2))
    assert constrained.token in inside
    assert free == alone
    assert constrained.logprob == pytest.approx(float(LOGITS.log_softmax(-1)[constrained.token]))
    if index < 4 and inside - {1, 2}:
        assert constrained.token not in (1, 2)


@given(values=settings_of_a_request, seed=st.integers(0, 2**63 - 1), data=st.data())
def test_only_what_is_left_comes(values: dict[str, Any], seed: int, data: st.DataObject) -> None:
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed % 2**32)) * 3
    history = data.draw(st.lists(st.integers(0, VOCAB - 1), max_size=20))
    index = data.draw(st.integers(0, len(history)))
    params = SamplingParams(seed=seed, **values)
    slack = SamplingParams(seed=seed, **values | {"top_p": min(1.0, params.top_p + 1e-6)})
    allowed = probabilities(logits, slack, history, index) > 0
    (token,) = sample(logits[None], [params], [history], [index])
    assert allowed[token.token]


@pytest.mark.parametrize("top_p", [0.5, 0.999])
@pytest.mark.parametrize("min_p", [0.0, 1e-4])
@pytest.mark.parametrize("top_k", [0, 500, 3000])
def test_large_vocabularies(top_p: float, min_p: float, top_k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at the likeliest candidates first gives the tokens that a full sort gives."""
    params = SamplingParams(seed=7, top_p=top_p, min_p=min_p, top_k=top_k)
    for spread in (0.5, 3.0):
        logits = torch.randn(5000, generator=torch.Generator().manual_seed(2)) * spread
        quick = draw(logits, params, [], 0, 64)
        with monkeypatch.context() as patch:
            patch.setattr(sampling, "CANDIDATES", 5000)
            assert quick.tolist() == draw(logits, params, [], 0, 64).tolist()


@given(seed=st.integers(-(2**63), 2**63 - 1), index=st.integers(0, 10**6), place=st.integers(0, 3))
def test_a_token_depends_on_seed_and_index_only(seed: int, index: int, place: int) -> None:
    params = SamplingParams(seed=seed, top_p=0.9)
    (alone,) = sample(LOGITS[None], [params], [[]], [index])
    others = [SamplingParams(temperature=0), SamplingParams(seed=3), SamplingParams(seed=4, top_k=3, logprobs=2)]
    batch = [*others[:place], params, *others[place:]]
    rows = torch.stack([LOGITS.flip(0), LOGITS * 2, LOGITS - 1])
    logits = torch.cat([rows[:place], LOGITS[None], rows[place:]])
    assert sample(logits, batch, [[]] * 4, [index] * 4)[place] == alone


def test_indices_and_seeds_are_independent() -> None:
    params = SamplingParams(seed=5)
    by_index = [sample(LOGITS[None], [params], [[]], [index])[0].token for index in range(500)]
    by_seed = draw(LOGITS, params, [], 0, 500)
    assert len(set(by_index)) > 15
    assert len(set(by_seed)) > 15
    uniforms = np.array([[sampling._uniform(SamplingParams(seed=s), i) for i in range(60)] for s in range(60)])
    assert abs(uniforms.mean() - 0.5) < 5 / math.sqrt(12 * uniforms.size)
    assert np.abs(np.corrcoef(uniforms) - np.eye(60)).max() < 0.6
    assert np.abs(np.corrcoef(uniforms.T) - np.eye(60)).max() < 0.6


def test_choices_differ_and_unseeded_requests_too() -> None:
    seeded = [SamplingParams(seed=9, n=3).for_choice(choice) for choice in range(3)]
    assert [p.seed for p in seeded] == [9, 10, 11]
    assert {p.n for p in seeded} == {1}
    assert SamplingParams().for_choice(0).seed != SamplingParams().for_choice(0).seed
    with pytest.raises(ValueError, match="needs a seed"):
        sample(LOGITS[None], [SamplingParams()], [[]], [0])


def test_greedy_takes_the_first_maximum() -> None:
    logits = torch.zeros(3, VOCAB)
    logits[0, 7] = logits[0, 9] = 1
    logits[1] = LOGITS
    logits[2] = -torch.inf
    logits[2, 30] = -5
    tokens = sample(logits, [SamplingParams(temperature=0)] * 3, [[]] * 3, [0] * 3)
    assert [t.token for t in tokens] == [7, int(LOGITS.argmax()), 30]


@given(penalty=st.floats(0.2, 5), history=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30))
def test_repetition_penalty_is_that_of_transformers(penalty: float, history: list[int]) -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([history]), LOGITS[None].clone())
    (token,) = sample(LOGITS[None], [SamplingParams(temperature=0, repetition_penalty=penalty)], [history], [0])
    assert token.token == int(expected.argmax())


def test_a_token_of_the_prompt_behind_the_vocabulary_changes_nothing() -> None:
    params = [SamplingParams(temperature=0, repetition_penalty=2.0, presence_penalty=1.0)]
    plain, with_one = (sample(LOGITS[None], params, [history], [0]) for history in ([1, 2], [1, len(LOGITS) + 3, 2]))
    assert with_one == plain


def test_presence_and_frequency_count_the_output_only() -> None:
    best, second = LOGITS.topk(2).indices.tolist()
    gap = float(LOGITS[best] - LOGITS[second])
    history = [best, best, best]

    def next_token(index: int, **penalties: float) -> int:
        params = SamplingParams(temperature=0, **penalties)
        return sample(LOGITS[None], [params], [history], [index])[0].token

    assert next_token(0, presence_penalty=gap + 0.01) == best
    assert next_token(1, presence_penalty=gap + 0.01) == second
    assert next_token(3, presence_penalty=gap - 0.01) == best
    assert next_token(3, frequency_penalty=gap / 3 + 0.01) == second
    assert next_token(2, frequency_penalty=gap / 3 + 0.01) == best


def test_logprobs_are_of_the_unmodified_distribution() -> None:
    params = SamplingParams(seed=1, temperature=0.3, top_k=1, repetition_penalty=1.5, logprobs=4)
    (token,) = sample(LOGITS[None], [params], [[2, 3]], [1])
    expected = LOGITS.log_softmax(-1)
    assert token.logprob == pytest.approx(float(expected[token.token]))
    assert token.top == [(int(i), pytest.approx(float(v))) for v, i in zip(*expected.topk(4), strict=True)]
    none, zero = sample(
        LOGITS.expand(2, -1),
        [SamplingParams(temperature=0), SamplingParams(temperature=0, logprobs=0)],
        [[], []],
        [0, 0],
    )
    assert (none.logprob, none.top) == (None, [])
    assert zero.top == []
    assert zero.logprob == pytest.approx(float(expected.max()))


def test_min_tokens_hold_back_the_end() -> None:
    best, second, third = LOGITS.topk(3).indices.tolist()
    params = SamplingParams(temperature=0, min_tokens=2, stop_token_ids=(second, 10**9))
    tokens = [sample(LOGITS[None], [params], [[]], [i], eos_token_ids=[best])[0].token for i in range(3)]
    assert tokens == [third, third, best]


@pytest.mark.parametrize("values", [{"temperature": 0}, {}, {"top_p": 0.5}, {"top_k": 3, "logprobs": 2}])
def test_broken_logits_still_give_a_token(values: dict[str, Any]) -> None:
    logits = torch.full((1, VOCAB), torch.nan)
    (token,) = sample(logits, [SamplingParams(seed=1, **values)], [[]], [0])
    assert 0 <= token.token < VOCAB


@given(values=settings_of_a_request)
def test_the_logits_stay_as_they_are(values: dict[str, Any]) -> None:
    before = LOGITS.clone()
    sample(LOGITS[None], [SamplingParams(seed=0, min_tokens=3, **values)], [[1, 2, 2]], [2], [4])
    assert torch.equal(LOGITS, before)


def test_a_large_batch() -> None:
    """Greedy, plain and truncated requests side by side get what each gets alone."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(256, 3000, generator=generator) * 3
    kinds: list[dict[str, Any]] = [{"temperature": 0}, {}, {"top_p": 0.9}, {"top_k": 20}, {"presence_penalty": 1.0}]
    params = [SamplingParams(seed=i, **kinds[i % len(kinds)]) for i in range(256)]
    histories = [[i, i + 1, i + 2] for i in range(256)]
    indices = [i % 4 for i in range(256)]
    together = sample(logits, params, histories, indices)
    alone = [
        sample(logits[i : i + 1], params[i : i + 1], histories[i : i + 1], indices[i : i + 1])[0] for i in range(256)
    ]
    assert together == alone


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": -0.1}, "temperature must be between 0 and 100, got -0.1"),
        ({"temperature": math.nan}, "temperature must be"),
        ({"temperature": math.inf}, "temperature must be"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.1}, "top_p must be"),
        ({"top_k": -2}, "top_k must be at least -1, got -2"),
        ({"min_p": 1.5}, "min_p must be between 0 and 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0"),
        ({"presence_penalty": 2.1}, "presence_penalty must be between -2 and 2"),
        ({"frequency_penalty": -2.1}, "frequency_penalty must be between -2 and 2"),
        ({"n": 0}, "n must be between 1"),
        ({"n": 65}, "n must be between 1 and 64"),
        ({"seed": 2**63}, "seed must be between"),
        ({"max_tokens": -1}, "max_tokens must be at least 0, got -1"),
        ({"min_tokens": -1}, "min_tokens must be at least 0"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens must not be above max_tokens 3, got 4"),
        ({"logprobs": 21}, "logprobs must be between 0 and 20, got 21"),
        ({"logprobs": -1}, "logprobs must be"),
        ({"prompt_logprobs": 21}, "prompt_logprobs must be between 0 and 20, got 21"),
        ({"stop": ("a", "")}, "stop must not contain an empty string"),
        ({"stop_token_ids": (-1,)}, "stop_token_ids must not contain negative"),
    ],
)
def test_validation(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamError, match=message) as caught:
        SamplingParams(**values).check()
    assert caught.value.param == message.split()[0]


def test_defaults_and_extremes_are_valid() -> None:
    SamplingParams().check()
    SamplingParams(temperature=0, top_p=1e-9, top_k=10**9, min_p=1, seed=-(2**63), logprobs=20, n=64).check()
