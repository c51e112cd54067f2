"""Steps of decode that try out what may come: their tokens are those of one step after another, and no page is lost."""

import random
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipc_buffers import PagePool
from unifiedserve.memory.content_keys import ROOT_KEY, MediaTokens, page_keys
from unifiedserve.memory.kv_cache import KVCache, KVLayout
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.ticket import Ticket
from unifiedserve.sampling.grammar import regex_grammar
from unifiedserve.sampling.sample import sample
from unifiedserve.scheduling import schedule_decode
from unifiedserve.worker.language.decode import DecodeStage
from unifiedserve.worker.language.model import Rows
from unifiedserve.worker.language.prompt_lookup import LONGEST, SHORTEST, look_up
from unifiedserve.worker.language.sampler import Key, Sampler
from unifiedserve.worker.language.sequence import Sequence
from unifiedserve.worker.language.speculation import Speculation

VOCAB, EOS, PAGE, PAGES = 6, 5, 4, 24
OFFSET = 3  # from a place to its position
NEVER = 4
LIKELY = torch.randn(VOCAB, VOCAB, VOCAB, generator=torch.Generator().manual_seed(1)) * 3
SHIFT = torch.randn(7, VOCAB, generator=torch.Generator().manual_seed(2))
KINDS = [
    SamplingParams(temperature=0, max_tokens=40),
    SamplingParams(temperature=0.3, seed=1, max_tokens=37, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=2, max_tokens=30, top_p=0.8, min_tokens=6),
    SamplingParams(temperature=0, max_tokens=33, repetition_penalty=1.2, ignore_eos=True),
    SamplingParams(temperature=0.5, seed=3, max_tokens=25, presence_penalty=0.5, frequency_penalty=0.2, logprobs=2),
    SamplingParams(temperature=0, stop_token_ids=(2,), min_tokens=3, max_tokens=40),
    SamplingParams(temperature=0, max_tokens=1),
]

Asked = list[tuple[list[int], SamplingParams]]
texts = st.lists(st.integers(0, VOCAB - 2), min_size=1, max_size=14)
requests = st.lists(st.tuples(texts, st.sampled_from(KINDS)), min_size=1, max_size=4)


def naive(tokens: list[int], most: int) -> list[int]:
    for length in range(LONGEST, SHORTEST - 1, -1):
        for start in range(len(tokens) - length - 1, -1, -1):
            if tokens[start : start + length] == tokens[-length:]:
                found = list(tokens)
                for i in range(most):
                    found.append(found[start + length + i])
                return found[len(tokens) :]
    return []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 9))
def test_what_followed_the_latest_of_the_longest_matches_is_found(tokens: list[int], most: int) -> None:
    assert look_up(np.array(tokens, np.intc), most) == naive(tokens, most)


def test_a_phrase_of_the_prompt_is_quoted_and_a_list_is_gone_on_with() -> None:
    assert look_up(np.array([1, 2, 3, 4, 5, 6, 7, 2, 3, 4], np.intc), 2) == [5, 6]
    assert look_up(np.array([9, 1, 2, 1, 2, 1, 2], np.intc), 5) == [1, 2, 1, 2, 1]
    assert look_up(np.array([1, 2, 3, 4], np.intc), 5) == []


def logits_after(context: list[int]) -> torch.Tensor:
    """What comes next depends on the last tokens above all, and a little on all of them."""
    before = context[-2] if len(context) > 1 else 0
    return LIKELY[before, context[-1]] + SHIFT[sum(context) % len(SHIFT)]


def one_by_one(prompt: list[int], params: SamplingParams) -> list[tuple[int, float | None]]:
    """The tokens of an answer and their log probabilities, sampled one after another."""
    tokens, came = list(prompt), []
    while len(came) < (params.max_tokens or 0):
        (sampled,) = sample(logits_after(tokens)[None], [params], [tokens], [len(came)], (EOS,))
        tokens.append(sampled.token)
        came.append((sampled.token, sampled.logprob))
        if sampled.token in params.stop_token_ids or (sampled.token == EOS and not params.ignore_eos):
            break
    return came


class PagedModel:
    """A model whose keys are the tokens: it knows of a context nothing but what its pages hold."""

    def __init__(self, pages: int) -> None:
        layout = KVLayout(1, PAGE, 1, 1, "float32")
        self.kv = KVCache(PagePool.create(f"test-models-{uuid.uuid4().hex[:12]}", pages, layout.page_bytes), layout)
        self.adapter = SimpleNamespace(position_rows=3)

    def close(self) -> None:
        self.kv.pool.close()
        self.kv.pool.unlink()

    def run(self, rows: Rows) -> torch.Tensor:
        """Logits [n, vocab] after each token of these."""
        assert rows.positions.tolist() == [[rows.start + i + OFFSET for i in range(len(rows.token_ids))]] * 3
        assert rows.wanted == rows.logits == len(rows.token_ids)
        keys = self.kv.k(0)
        for place, token in enumerate(rows.token_ids, rows.start):
            keys[rows.pages[place // PAGE], place % PAGE] = token
        context = [token for page in rows.pages for token in self.tokens(page)]
        return torch.stack([logits_after(context[: rows.start + i + 1]) for i in range(len(rows.token_ids))])

    def tokens(self, page: int) -> list[int]:
        return [int(token) for token in self.kv.k(0)[page, :, 0, 0]]


@pytest.fixture(scope="module")
def model() -> Iterator[PagedModel]:
    made = PagedModel(PAGES)
    yield made
    made.close()


class Guesses(Speculation):
    """Drafts of what will come, wrong every now and then, and too long at the end."""

    def __init__(self, expected: dict[int, list[tuple[int, float | None]]], seed: int) -> None:
        super().__init__()
        self._expected, self._random = expected, random.Random(seed)

    def draft(self, sequences: list[Sequence]) -> list[list[int]]:
        return [self._guess(sequence) for sequence in sequences]

    def _guess(self, sequence: Sequence) -> list[int]:
        coming = [token for token, _ in self._expected[sequence.ticket.uid]] + [0, 1, 2]
        guess = coming[sequence.num_generated : sequence.num_generated + self._random.randrange(8)]
        return [token if self._random.random() < 0.8 else (token + 1) % VOCAB for token in guess]


def stage_of(model: Any, speculation: Speculation) -> DecodeStage:
    visual: Any = SimpleNamespace(release=lambda pages: None)
    grammars: Any = None
    return DecodeStage(model, visual, 1, Sampler(grammars, (EOS,)), speculation)


def begin(model: Any, uid: int, prompt: list[int], params: SamplingParams) -> Sequence:
    """An answer behind its prefill: the keys of all but its last token are there."""
    pages = model.kv.pool.allocate(model.kv.pages_for(len(prompt)), uid)
    sequence = Sequence(
        ticket=Ticket(uid, float(uid)),
        index=0,
        token_ids=list(prompt),
        num_prompt=len(prompt),
        pages=pages.tolist(),
        position_offset=OFFSET,
        sampling=params,
        last_key=ROOT_KEY,
    )
    for place, token in enumerate(prompt[:-1]):
        model.kv.k(0)[sequence.pages[place // PAGE], place % PAGE] = token
    return sequence


@given(requests, st.integers(0, 7))
def test_tokens_are_those_of_one_step_after_another(model: Any, asked: Asked, most: int) -> None:
    expected = {uid: one_by_one(prompt, params) for uid, (prompt, params) in enumerate(asked, 1)}
    for batch in run(model, asked, expected, Speculation(most, {NEVER})):
        assert sum(rows.logits for rows in batch) <= max(len(batch), 1 + most)
        assert not any(NEVER in rows.token_ids[1:] for rows in batch)


@given(requests, st.integers())
def test_so_they_are_with_better_drafts(model: Any, asked: Asked, seed: int) -> None:
    expected = {uid: one_by_one(prompt, params) for uid, (prompt, params) in enumerate(asked, 1)}
    run(model, asked, expected, Guesses(expected, seed))


def run(
    model: Any, asked: Asked, expected: dict[int, list[tuple[int, float | None]]], speculation: Speculation
) -> list[list[Rows]]:
    """Decode answers until they end, or are preempted: the pages are too few for all. Kept pages hold what they should.

    Returns the rows of each step.
    """
    stage = stage_of(model, speculation)
    contents = {}
    running: dict[int, Sequence] = {}
    for uid, (prompt, params) in enumerate(asked, 1):
        running[uid] = begin(model, uid, prompt, params)
        stage.accept(running[uid])
        whole = [*prompt, *(token for token, _ in expected[uid])]
        for number, key in enumerate(page_keys(whole, PAGE, MediaTokens([], []))):
            contents[key] = whole[number * PAGE : (number + 1) * PAGE]
    came: dict[int, list[tuple[int, float | None]]] = {uid: [] for uid in expected}
    ended: set[int] = set()
    steps: list[list[Rows]] = []
    while len(stage):
        states = [stage.state(sequence) for sequence in running.values()]
        keys, preempted = schedule_decode(states, model.kv.pool.free_pages(), PAGE, len(asked))
        for uid, _ in preempted:
            stage.drop_request(uid)
            del running[uid]
        batch = stage.rows(keys, drafts=True)
        assert [key for key, _ in batch] == keys  # what is planned gets its pages
        steps.append([rows for _, rows in batch])
        for token in stage.finish(batch, torch.cat([model.run(rows) for _, rows in batch])):
            assert token.number == len(came[token.uid])
            came[token.uid].append((token.token.token, token.token.logprob))
            if token.finish:
                ended.add(token.uid)
                del running[token.uid]
        for kept in stage.log.take()[0]:
            assert [contents[kept.key]] == [model.tokens(page) for page in kept.pages.numbers]
    for uid, tokens in expected.items():
        assert came[uid] == tokens[: len(came[uid])]
        assert uid not in ended or len(came[uid]) == len(tokens)
    assert 1 in ended
    assert model.kv.pool.used_pages() == 0
    return steps


def take_steps(
    model: Any, params: SamplingParams, prompt: list[int], pages_left: int, most: int = 7
) -> tuple[int, int]:
    """How many steps one answer took, and how many tokens it has."""
    stage = stage_of(model, Speculation(most))
    sequence = begin(model, 1, prompt, params)
    held = model.kv.pool.allocate(model.kv.pool.free_pages() - pages_left, 2)
    stage.accept(sequence)
    taken = 0
    while len(stage):
        batch = stage.rows([sequence.key], drafts=True)
        stage.finish(batch, torch.cat([model.run(rows) for _, rows in batch]))
        taken += 1
    model.kv.pool.release(held)
    assert model.kv.pool.used_pages() == 0
    return taken, sequence.num_generated


SAME = SamplingParams(temperature=0, logit_bias={1: 100}, max_tokens=17)


def test_a_text_that_repeats_itself_takes_few_steps(model: Any) -> None:
    taken, tokens = take_steps(model, SAME, [1, 1, 1, 1], PAGES - 1)
    assert tokens == 17
    assert taken <= 5
    assert take_steps(model, SAME, [1, 1, 1, 1], PAGES - 1, most=0) == (17, 17)


def test_an_answer_that_just_fits_takes_no_page_for_drafts(model: Any) -> None:
    """Its last token's keys are not needed: 20 places for a prompt of 4 and 17 tokens."""
    _, tokens = take_steps(model, SAME, [1, 1, 1, 1], 4)
    assert tokens == 17


def key_of(uid: int) -> Key:
    return uid, 0


def test_rows_are_shared_out_and_grammars_have_none() -> None:
    def answer(uid: int, params: SamplingParams) -> Sequence:
        return Sequence(
            ticket=Ticket(uid, 0.0),
            index=0,
            token_ids=[1] * 9,
            num_prompt=8,
            pages=[],
            position_offset=0,
            sampling=params,
        )

    free = SamplingParams(temperature=0, max_tokens=100)
    bound = SamplingParams(temperature=0, max_tokens=100, grammar=regex_grammar("1*"))
    speculation = Speculation(7)
    for _ in range(20):
        for uid in range(1, 9):
            speculation.learn(key_of(uid), 4, 4)
        drafts = [len(draft) for draft in speculation.draft([answer(1, free), answer(2, bound), answer(3, free)])]
    assert drafts == [2, 0, 3]
    assert [len(draft) for draft in speculation.draft([answer(1, free)])] == [7]
    assert [len(draft) for draft in speculation.draft([answer(uid, free) for uid in range(1, 9)])] == [0] * 8
    assert [len(draft) for draft in speculation.draft([answer(1, SamplingParams(temperature=0, max_tokens=3))])] == [1]
