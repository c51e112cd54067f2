"""Steps of decode are launched before the tokens of those before are known: nobody can tell, whatever happens then.

The device does a step only when its tokens are waited for; pages that come free are overwritten at once.
"""

import random
from collections.abc import Callable, Collection

import msgspec
import pytest
from checkpoints import find_checkpoint
from deferred import DeferredDevice, DeferredStream
from inline_workers import Asked, apart
from taken_pages import POISON, taken_at_once

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device
from unifiedserve.device.cuda import step_graphs
from unifiedserve.memory.device_pages import DevicePages
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.placement import FIRST_MEMORY
from unifiedserve.sampling import sample
from unifiedserve.sampling.grammar import regex_grammar
from unifiedserve.scheduling.tbt_control import LEAST_SHARE
from unifiedserve.worker.language.decode_ahead import Collected, DecodeAhead
from unifiedserve.worker.language.sampler import Key

SOON = tuple(range(0, 1000, 6))  # stop tokens: a random model meets one before long
KINDS = {
    "greedy": SamplingParams(temperature=0, max_tokens=11),
    "sampled": SamplingParams(temperature=1.2, seed=1, max_tokens=14, stop_token_ids=SOON),
    "truncated": SamplingParams(temperature=1.5, top_p=0.97, seed=2, max_tokens=20),
    "scored": SamplingParams(temperature=0.8, top_k=7, seed=3, max_tokens=6, logprobs=2),
    "no end too early": SamplingParams(temperature=1.0, seed=4, min_tokens=5, max_tokens=30, stop_token_ids=SOON),
    "not the same again": SamplingParams(temperature=0, repetition_penalty=1.7, max_tokens=24),
    "rarely the same again": SamplingParams(temperature=0.7, repetition_penalty=1.3, top_p=0.9, seed=7, max_tokens=16),
    "one token": SamplingParams(temperature=0, max_tokens=1),
}
FOLLOWING = {
    "penalised": SamplingParams(temperature=0.9, presence_penalty=0.7, seed=5, max_tokens=12),
    "by a grammar": SamplingParams(
        temperature=0.7, seed=6, max_tokens=12, grammar=regex_grammar("(yes|no), [a-z ]{3,9}")
    ),
}
CONFIG = EngineConfig.of(prefill_chunk_tokens=16, vision_threads=1, max_running=4)
WRITTEN = bytes([POISON])  # all over a page, by whoever takes it next
Answers = dict[int, list[int]]


@pytest.fixture
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Answers]:
    """Return a function that asks several things, in some placement and order, and aborts some of them."""
    checkpoint = find_checkpoint(tmp_path_factory, "qwen2_5_vl")

    def answers(device: Device, kinds: list[SamplingParams], seed: int, placement: str, *aborted: int) -> Answers:
        order = random.Random(seed)
        with apart(checkpoint, CONFIG, device, placement) as workers:
            for uid, sampling in enumerate(kinds, 1):
                ids = [order.randrange(10, 400) for _ in range(order.randrange(3, 40))]
                workers.submit(uid, Asked(ids, [], []), sampling)
                for _ in range(order.randrange(4)):
                    workers.turn()
            kept = {uid for uid in range(1, len(kinds) + 1) if uid not in aborted}
            for uid in aborted:
                workers.run_until(lambda uid=uid: len(workers.tokens[uid]) > 2 or uid in workers.ended)
                workers.abort(uid)
            workers.run_until(lambda: kept <= workers.ended and set(aborted) <= workers.drained)
            for uid in kept:
                workers.abort(uid)
            workers.run_until(lambda: kept <= workers.drained)
            assert set(workers.used_pages().values()) == {0}
            pool = workers.memory.pools[FIRST_MEMORY, "kv"]
            contents = [pool.memory.read(page * pool.page_bytes, pool.page_bytes) for page in range(pool.num_pages)]
            assert {bytes(pool.page_bytes), WRITTEN * pool.page_bytes} == set(contents)  # nothing came later
            return {uid: [token for _, token in sorted(workers.tokens[uid].items())] for uid in kept}

    return answers


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many steps were under way at each launch; and give pages to somebody who writes to them at once."""
    monkeypatch.setattr(DevicePages, "release", taken_at_once(DevicePages.release))
    before: list[int] = []
    launch = DecodeAhead.launch

    def counted(ahead: DecodeAhead, *sequences: object) -> None:
        before.append(len(ahead))
        launch(ahead, *sequences)  # type: ignore[arg-type]

    monkeypatch.setattr(DecodeAhead, "launch", counted)
    return before


@pytest.mark.parametrize("placement", ["shared", "monolithic"])
def test_answers_are_those_of_the_processor(ask: Callable[..., Answers], launches: list[int], placement: str) -> None:
    kinds = [*KINDS.values(), *KINDS.values()]
    expected = ask(CPU, kinds, 0, placement)
    assert not launches
    assert ask(DeferredDevice(), kinds, 0, placement) == expected
    assert launches.count(1) > len(launches) / 2  # while another one was under way


def test_so_they_are_beside_some_that_must_be_waited_for(ask: Callable[..., Answers], launches: list[int]) -> None:
    kinds = [*KINDS.values(), *FOLLOWING.values(), *KINDS.values()]
    assert ask(DeferredDevice(), kinds, 1, "shared") == ask(CPU, kinds, 1, "shared")
    assert {0, 1} <= set(launches)


def test_so_they_are_when_tokens_turn_out_to_be_undecided(
    ask: Callable[..., Answers], launches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was launched meanwhile for such a sequence is done again."""
    monkeypatch.setattr(sample, "CANDIDATES", 3)
    kinds = [KINDS["truncated"], KINDS["greedy"], KINDS["truncated"], KINDS["scored"]]
    expected = ask(CPU, kinds, 2, "shared")
    assert ask(DeferredDevice(), kinds, 2, "shared") == expected
    assert 1 in launches


@pytest.mark.parametrize("fails", [False, True])
def test_so_they_are_where_steps_are_not_recorded_yet(
    ask: Callable[..., Answers], launches: list[int], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Contexts grow beyond those that are recorded at the start; what is to be recorded then may fail."""
    monkeypatch.setattr(step_graphs, "FIRST_CONTEXT", 8)
    monkeypatch.setattr(step_graphs, "TIMES", 2)
    monkeypatch.setattr(step_graphs, "AHEAD", 1)
    record, recorded, eager = DeferredStream.record, list[object](), list[bool]()

    def some_are_recorded(stream: DeferredStream, work: Callable[[], object]) -> Callable[[], object]:
        recorded.append(work)
        if fails and len(recorded) > at_the_start:
            raise RuntimeError("no memory is left")
        return record(stream, work)

    def collected(ahead: DecodeAhead, running: Collection[Key]) -> Collected:
        found = collect(ahead, running)
        eager.append(found.eager)
        return found

    at_the_start, collect = 2 * len(list(step_graphs.row_buckets(CONFIG.scheduling.max_running))), DecodeAhead.collect
    monkeypatch.setattr(DeferredStream, "record", some_are_recorded)
    monkeypatch.setattr(DecodeAhead, "collect", collected)
    kinds = [*KINDS.values(), *KINDS.values()]
    assert ask(DeferredDevice(), kinds, 3, "shared") == ask(CPU, kinds, 3, "shared")
    assert {False, True} == set(eager)
    assert len(recorded) > at_the_start if not fails else len(recorded) == at_the_start + 1


@pytest.mark.parametrize("seed", range(2))
def test_aborted_answers_leave_the_others_alone(ask: Callable[..., Answers], launches: list[int], seed: int) -> None:
    kinds = [*KINDS.values(), *KINDS.values()]
    expected = ask(CPU, kinds, seed, "shared", 3, 7)
    assert ask(DeferredDevice(), kinds, seed, "shared", 3, 7) == expected
    assert launches


@pytest.mark.parametrize("number", [9, 10, 11])
def test_an_answer_that_ends_while_another_gives_its_pages_back_leaves_the_others_alone(
    tmp_path_factory: pytest.TempPathFactory, number: int
) -> None:
    """Its last token is on its way when pages run out, at the tenth token of all."""
    checkpoint = find_checkpoint(tmp_path_factory, "qwen2_5_vl")
    prompt = Asked(list(range(10, CONFIG.memory.kv_page_tokens + 1)), [], [])
    sampling = SamplingParams(temperature=1.2, seed=9, max_tokens=20)
    with apart(checkpoint, CONFIG, CPU) as workers:
        workers.submit(1, prompt, sampling)
        whole = workers.answer(1)
    ends = msgspec.structs.replace(sampling, stop_token_ids=(whole[number - 1],))
    with apart(checkpoint, CONFIG, DeferredDevice()) as workers:
        for uid in (1, 2, 3):
            workers.submit(uid, prompt, ends if uid == 1 else sampling)
        workers.run_until(lambda: all(len(workers.tokens[uid]) > 2 for uid in (1, 2, 3)))
        pool = workers.memory.pools[FIRST_MEMORY, "kv"]
        assert pool.allocate(pool.free_pages() - 1, 4) is not None
        assert workers.answer(1) == whole[:number]
        assert workers.answer(2) == whole
        assert len(workers.tokens[3]) < len(whole)


@pytest.mark.parametrize("device", [CPU, DeferredDevice()], ids=["cpu", "stand-in"])
def test_a_target_that_cannot_be_held_leaves_heavy_work_its_least_and_only_beside_streams(
    tmp_path_factory: pytest.TempPathFactory, device: Device
) -> None:
    config = EngineConfig.of(prefill_chunk_tokens=256, vision_threads=1, slo_tbt=1e-6)
    with apart(find_checkpoint(tmp_path_factory, "qwen2_5_vl"), config, device) as workers:
        status = workers.memory.status
        assert status.held[0] == 1.0
        workers.submit(1, Asked([20, 21, 22], [], []), SamplingParams(temperature=0, max_tokens=300, ignore_eos=True))
        workers.run_until(lambda: len(workers.tokens[1]) > 2)
        uid = 2
        while status.held[0] > LEAST_SHARE:
            workers.submit(uid, Asked(list(range(10, 400)), [], []), SamplingParams(temperature=0, max_tokens=1))
            workers.answer(uid)
            uid += 1
        assert status.held[1] > 0
        workers.run_until(lambda: 1 in workers.ended)
        workers.run_until(lambda: status.held[0] == 1.0)
