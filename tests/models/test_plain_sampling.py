"""Plain sampling draws the token of the whole distribution's running sum, by less work, whatever shares its batch."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.sampling import sample as sampling
from unifiedserve.sampling.sample import sample

QWEN = 152_064
VOCABULARIES = [1, 2, 40, 1023, 1024, 1025, 5000, 32_000, QWEN]
LEAST, MOST = 0.0, 1 - 2.0**-53  # of a uniform
NEAR_THE_END = 1 - 2.0**-20  # behind it, tokens are so unlikely that a running sum in float64 may miss them


def by_running_sum(logits: Tensor, temperature: float, uniform: float) -> int:
    """Return the entry of the running sum of all probabilities in which uniform × total falls."""
    bounds = (logits / temperature).softmax(-1).cumsum(-1, dtype=torch.float64)
    total = bounds[-1:]
    target = (uniform * total).minimum(torch.nextafter(total, torch.zeros_like(total)))
    return int(torch.searchsorted(bounds, target, right=True))


def exactly(logits: Tensor, uniform: float) -> int:
    """Return that entry by Python's whole numbers, in units of 2^-62."""
    weights = [int(value * 2.0**62) for value in logits.softmax(-1).double().tolist()]
    target = min(int(uniform * float(sum(weights))), sum(weights) - 1)
    return next(token for token, bound in enumerate(accumulate(weights)) if bound > target)


def of_kind(kind: str, vocab: int, random: torch.Generator) -> Tensor:
    """Return float32 logits [vocab]."""
    logits = torch.randn(vocab, generator=random)
    place = int(torch.randint(vocab, (1,), generator=random))
    match kind:
        case "random":
            return logits * 3
        case "rounded":
            return (logits * 4).bfloat16().float()
        case "equal":
            return torch.full((vocab,), 7.0)
        case "one likely":
            logits[place] = 40
        case "the last alone":
            logits[:-1] = -torch.inf
        case "few are possible":
            kept = torch.randint(vocab, (5,), generator=random)
            return torch.full((vocab,), -torch.inf).index_fill_(0, kept, 2.0)
        case "descending":
            return torch.linspace(60, -60, vocab)
        case "far apart":
            return logits * 1e4
    return logits


KINDS = [
    "random",
    "rounded",
    "equal",
    "one likely",
    "the last alone",
    "few are possible",
    "descending",
    "far apart",
]


def uniform_of(params: SamplingParams, index: int) -> float:
    return sampling._uniform(params, index)


@settings(max_examples=150)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=20),
    vocab=st.sampled_from(VOCABULARIES),
    temperatures=st.lists(st.sampled_from([1.0, 0.7, 1e-5, 3.0, 100.0]), min_size=20, max_size=20),
    index=st.integers(0, 1000),
    seed=st.integers(0, 2**32),
)
def test_it_is_the_token_of_the_running_sum(
    kinds: list[str], vocab: int, temperatures: list[float], index: int, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    logits = torch.stack([of_kind(kind, vocab, random) for kind in kinds])
    params = [SamplingParams(temperature=temperatures[row], seed=seed + row) for row in range(len(kinds))]
    drawn = sample(logits, params, [[]] * len(kinds), [index] * len(kinds))
    for row, (own, each) in enumerate(zip(params, drawn, strict=True)):
        assert each.token == by_running_sum(logits[row], own.temperature, uniform_of(own, index))


def draw(logits: Tensor, uniform: float) -> int:
    """Draw by a uniform of one's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "_uniform", lambda params, index: uniform)
        return sample(logits[None], [SamplingParams(seed=0)], [[]], [0])[0].token


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_so_it_is_at_the_ends_of_the_distribution(kind: str, vocab: int) -> None:
    logits = of_kind(kind, vocab, torch.Generator().manual_seed(vocab))
    for uniform in (LEAST, 1 / 3, NEAR_THE_END):
        assert draw(logits, uniform) == by_running_sum(logits, 1.0, uniform)
    for uniform in (LEAST, MOST):
        assert draw(logits, uniform) == exactly(logits, uniform)
        assert logits[draw(logits, uniform)] > -torch.inf


@given(power=st.integers(0, 14), place=st.integers(0, 2**14 - 1))
def test_a_bound_belongs_to_the_token_behind_it(power: int, place: int) -> None:
    """All probabilities are the same power of two, so bounds are exact."""
    vocab = 2**power
    token = place % vocab
    assert draw(torch.zeros(vocab), token / vocab) == token


@pytest.mark.parametrize(("uniform", "reverse"), [(MOST, False), (LEAST, True)])
def test_sums_are_exact(uniform: float, reverse: bool) -> None:
    """Each of many tokens is too unlikely to count in a running sum that is near 1, and yet all together do."""
    logits = torch.full((QWEN,), -38.0)
    logits[0] = 0
    logits = logits.flip(0) if reverse else logits
    drawn = draw(logits, uniform)
    assert drawn == exactly(logits, uniform)
    assert logits[drawn] < 0


OTHERS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"top_k": 5},
    {"top_p": 0.8, "temperature": 0.6},
    {"min_p": 0.1},
    {"presence_penalty": 0.5, "repetition_penalty": 1.2},
]


@settings(max_examples=25)
@given(
    mixed=st.lists(st.none() | st.sampled_from(OTHERS), min_size=1, max_size=40),
    vocab=st.sampled_from([40, 1025, 5000]),
    seed=st.integers(0, 2**32),
)
def test_a_token_does_not_depend_on_its_batch(mixed: list[dict[str, Any] | None], vocab: int, seed: int) -> None:
    """Others come before and behind it, alike or drawn in another way, in more rows than are worked on at a time."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(mixed), vocab, generator=random) * 2
    params = [SamplingParams(**{"temperature": 0.9, "seed": row} | (own or {})) for row, own in enumerate(mixed)]
    histories = [[1, 2, 3 % vocab]] * len(mixed)
    together = sample(logits, params, histories, [2] * len(mixed))
    apart = [sample(logits[row : row + 1], [own], histories[:1], [2])[0] for row, own in enumerate(params)]
    assert together == apart
    strided = torch.empty(vocab, len(mixed)).t().copy_(logits)
    assert sample(strided, params, histories, [2] * len(mixed)) == apart


def test_logits_that_are_no_numbers_give_a_token_all_the_same() -> None:
    logits = torch.full((3, 5000), torch.nan)
    logits[1] = -torch.inf
    logits[2, 17] = torch.inf
    for each in sample(logits, [SamplingParams(seed=row) for row in range(3)], [[]] * 3, [0] * 3):
        assert 0 <= each.token < 5000


class Made(TorchDispatchMode):
    """Keeps the bytes of the largest tensor that is made; views of those that are there are not."""

    def __init__(self, there: Tensor) -> None:
        super().__init__()
        self.most = 0
        self._there = there.untyped_storage().data_ptr()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        storages = [tensor.untyped_storage() for tensor in tensors(found)]
        self.most = max([self.most, *(own.nbytes() for own in storages if own.data_ptr() != self._there)])
        return found


def tensors(found: Any) -> Iterator[Tensor]:
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, tuple | list):
        for each in found:
            yield from tensors(each)


def test_many_rows_take_no_more_memory_than_some() -> None:
    """No tensor that is made is as large as the logits of a full batch are."""
    logits = torch.randn(64, QWEN, generator=torch.Generator().manual_seed(0))
    params = [SamplingParams(seed=row, temperature=0.8) for row in range(64)]
    with Made(logits) as made:
        taken = sampling.Draw(logits, params, [[]] * 64, [0] * 64)
    assert made.most < logits.nbytes
    assert taken.tokens.shape == (64,)
