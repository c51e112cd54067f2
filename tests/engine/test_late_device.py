"""All stages on a device that computes late: a page is given back, and a message sent, only when all is done.

Each worker has the device's queue to itself, as if it were a process, so that nothing but the fence orders their work.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import reference
from checkpoints import find_checkpoint
from deferred import DeferredDevice
from every_family import FAMILIES
from family_questions import questions
from inline_workers import Asked, InlineWorkers, apart, as_sent
from media import Clip
from taken_pages import taken_at_once

from unifiedserve.config import EngineConfig
from unifiedserve.device import CPU, Device
from unifiedserve.memory.device_pages import DevicePages
from unifiedserve.messages.api import TokenLogprob
from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.messages.wire import PromptLogprobs, PromptVector, Token
from unifiedserve.sampling.grammar import regex_grammar
from unifiedserve.worker.outbox import Outbox

TOKENS = 8
CONFIG = EngineConfig.of(prefill_chunk_tokens=16, vision_threads=1)
GREEDY = SamplingParams(temperature=0, max_tokens=TOKENS)
KINDS = {
    "sampled": SamplingParams(temperature=0.9, top_p=0.8, seed=7),
    "among a few, penalised": SamplingParams(top_k=5, presence_penalty=0.5, repetition_penalty=1.2, seed=3),
    "with log probabilities": SamplingParams(temperature=0, logprobs=5, prompt_logprobs=3),
    "biased": SamplingParams(temperature=0, min_tokens=4, logit_bias={5: 3.0, 9: -100.0}),
    "by a grammar": SamplingParams(temperature=0.7, seed=5, grammar=regex_grammar("(yes|no), [a-z ]{3,9}")),
}

TRAVELS = "e+p@mem1+d@mem2"

Workers = Callable[..., AbstractContextManager[InlineWorkers]]
Scores = dict[tuple[int, int, int], TokenLogprob]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Workers:
    """Start the workers of a checkpoint on a device."""

    def started(name: str, device: Device, placement: str = "shared") -> AbstractContextManager[InlineWorkers]:
        return apart(find_checkpoint(tmp_path_factory, name), CONFIG, device, placement)

    return started


@pytest.fixture
def answers_right(
    start: Workers, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, clips: Callable[[int], Clip]
) -> Callable[..., bool]:
    """Ask several things at once, of images and of videos; return whether all answers are those of transformers."""

    def right(placement: str = "shared") -> bool:
        hf = reference.load(find_checkpoint(tmp_path_factory, "qwen2_5_vl"))
        asked = questions(FAMILIES["qwen2_5_vl"], clips)
        with start("qwen2_5_vl", DeferredDevice(), placement) as workers:
            for uid, question in enumerate(asked.values(), 1):
                workers.submit(uid, as_sent(question, workers.processor, clips, tmp_path), GREEDY)
            found = [workers.answer(uid) for uid, _ in enumerate(asked, 1)]
        return found == [hf.generate(question.case, TOKENS) for question in asked.values()]

    return right


@pytest.mark.parametrize("placement", ["shared", TRAVELS])
def test_answers_are_right(answers_right: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, placement: str) -> None:
    monkeypatch.setattr(DevicePages, "release", taken_at_once(DevicePages.release))
    assert answers_right(placement)


def test_they_are_not_if_pages_are_given_back_early(
    answers_right: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the rule about pages, the test above fails."""
    monkeypatch.setattr(DevicePages, "release", taken_at_once(lambda pages, numbers: pages.pool.release(numbers)))
    assert not answers_right()


@pytest.mark.parametrize("placement", ["shared", pytest.param(TRAVELS, marks=pytest.mark.long)])
def test_they_are_not_if_messages_are_sent_early(
    answers_right: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    """Without the rule about messages, the test above fails."""
    connect = Outbox.__init__

    def without_fence(outbox: Outbox, *given: Any) -> None:
        connect(outbox, *given[:-1], lambda: None)

    monkeypatch.setattr(Outbox, "__init__", without_fence)
    assert not answers_right(placement)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_5"])  # the second has layers with a state
def test_all_that_may_be_asked(family: str, start: Workers, tmp_path: Path, clips: Callable[[int], Clip]) -> None:
    """Two answers to each, which get copies of pages: tokens and log probabilities are the processor's."""

    def scores(device: Device) -> Scores:
        with start(family, device) as workers:
            question = questions(FAMILIES[family], clips)["image"]
            for uid, kind in enumerate(KINDS.values(), 1):
                sampling = msgspec.structs.replace(kind, max_tokens=TOKENS)
                workers.submit(uid, as_sent(question, workers.processor, clips, tmp_path), sampling, answers=2)
            workers.run_until(lambda: sum(bool(token.finish) for token in tokens(workers)) == 2 * len(KINDS))
            found = {(each.uid, each.index, each.number): each.token for each in tokens(workers)}
            for part in [each for each in workers.told if isinstance(each, PromptLogprobs)]:
                found |= {(part.uid, -1, part.start + i): token for i, token in enumerate(part.tokens)}
            assert set(workers.used_pages().values()) == {0}
            return found

    expected, found = scores(CPU), scores(DeferredDevice())
    assert found.keys() == expected.keys()
    for place, token in expected.items():
        assert found[place].token == token.token, place
        assert found[place].logprob == pytest.approx(token.logprob, abs=1e-3), place
        assert [other for other, _ in found[place].top] == [other for other, _ in token.top], place


def test_embeddings(start: Workers) -> None:
    def vector(device: Device) -> np.ndarray:
        with start("pooled_texts", device) as workers:
            ids = list(range(40, 80))
            workers.submit(1, Asked(ids, [], []), SamplingParams(max_tokens=0), embed=True)
            workers.run_until(lambda: 1 in workers.through)
            (told,) = [each for each in workers.told if isinstance(each, PromptVector)]
            return np.frombuffer(told.data, np.float32)

    np.testing.assert_allclose(vector(DeferredDevice()), vector(CPU), rtol=1e-4, atol=1e-5)


def tokens(workers: InlineWorkers) -> list[Token]:
    return [each for each in workers.told if isinstance(each, Token)]
