"""Answers that another worker goes on with: their pages stay where they are, no token changes, and aborts find them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from inline_workers import Asked, InlineWorkers, as_sent
from media import Clip
from questions import Question, ask
from reference import Reference

from unifiedserve.config import EngineConfig
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import Abort, HandOver
from unifiedserve.models.registry import load_processor
from unifiedserve.placement import Route, Stage, read_placement

CONFIG = EngineConfig.of(prefill_chunk_tokens=32, kv_page_tokens=4, vision_threads=1)
SHORT, LONG = (SamplingParams(temperature=0, max_tokens=count, ignore_eos=True) for count in (12, 400))


@pytest.fixture(scope="module")
def question(clips: Callable[[int], Clip]) -> Question:
    return ask([clips(12).frames[3], "What is this?"], clips)


@pytest.fixture(scope="module")
def asked(
    question: Question,
    clips: Callable[[int], Clip],
    checkpoint: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Asked:
    return as_sent(question, load_processor(checkpoint), clips, tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def expected(hf: Reference, question: Question) -> list[int]:
    hf.model.generation_config.eos_token_id, eos = None, hf.model.generation_config.eos_token_id
    try:
        return hf.generate(question.case, SHORT.max_tokens)
    finally:
        hf.model.generation_config.eos_token_id = eos


@pytest.fixture(params=["ep+2d", "ep+2d@mem1"])
def workers(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[InlineWorkers]:
    workers = InlineWorkers(read_placement(request.param, ()), checkpoint, load_processor(checkpoint), CONFIG)
    yield workers
    workers.close()


def hand_over(workers: InlineWorkers) -> None:
    for host in ("encode-prefill", "decode-1"):
        workers.send(host, HandOver("decode-1", ["decode-2"]))


@pytest.mark.parametrize("turns", [0, 3])
def test_no_token_changes(workers: InlineWorkers, asked: Asked, expected: list[int], turns: int) -> None:
    """Neither of answers that are decoded already, nor of those whose prompts are still on their way, read or not."""
    for uid in (1, 2):
        workers.submit(uid, asked, SHORT)
    workers.run_until(lambda: any(len(workers.tokens[uid]) > 3 for uid in workers.served_by("decode-1")))
    for uid in (3, 4):
        workers.submit(uid, asked, SHORT)
    for _ in range(turns):
        workers.turn()
    hand_over(workers)
    workers.run_until(lambda: {each.uid for each in workers.handed} == workers.served_by("decode-1"))
    handed = monotonic()
    assert len(workers.handed) == 2
    assert [workers.answer(uid) for uid in (1, 2, 3, 4)] == [expected] * 4
    assert set(workers.used_pages().values()) == {0}
    steps = [each for each in workers.spans if (each.stage, each.name) == (Stage.DECODE, "decode")]
    assert {each.instance for each in steps if each.start > handed} == {"decode-2"}


@pytest.mark.parametrize("of", ["the request", "the answer"])
def test_an_abort_that_went_the_old_way_finds_them(workers: InlineWorkers, asked: Asked, of: str) -> None:
    workers.submit(1, asked, LONG)
    workers.run_until(lambda: len(workers.tokens[1]) > 3)
    hand_over(workers)
    if of == "the request":
        workers.abort(1)
        workers.run_until(lambda: 1 in workers.drained)
    else:
        workers.send("decode-1", Abort(1, Route(), index=0))
        workers.run_until(lambda: set(workers.used_pages().values()) == {0})
    assert [each.host for each in workers.handed] == ["decode-2"]
    assert set(workers.used_pages().values()) == {0}
    assert 1 not in workers.ended
